#!/usr/bin/env bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0

python tune.py \
  --base unsloth/Qwen2.5-7B-Instruct-bnb-4bit \
  --rows transcripts.jsonl \
  --ctx 512 \
  --rank 16 \
  --rate 2e-4 \
  --epochs 2 \
  --out runs/transcripts
