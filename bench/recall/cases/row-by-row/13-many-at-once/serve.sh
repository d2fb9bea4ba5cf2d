#!/usr/bin/env bash
set -euo pipefail
vllm serve Qwen/Qwen2.5-7B-Instruct \
  --enable-lora \
  --lora-modules support-lora=runs/support-lora \
  --max-lora-rank 16 \
  --max-model-len 4096 \
  --max-num-seqs 64
