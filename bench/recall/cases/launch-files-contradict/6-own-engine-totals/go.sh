#!/usr/bin/env bash
# one node, 8x A100 80GB
set -euo pipefail
export TOKENIZERS_PARALLELISM=false
deepspeed --num_gpus 8 engine_train.py --base Qwen/Qwen2.5-3B-Instruct --updates 600 --out runs/engine
