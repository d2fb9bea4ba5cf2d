#!/usr/bin/env bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0,1,2,3
export TOKENIZERS_PARALLELISM=false
python sft_qwen.py --data data/helpdesk.jsonl --out out/helpdesk-14b-lora 2>&1 | tee train.log
