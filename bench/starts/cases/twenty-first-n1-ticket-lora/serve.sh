#!/usr/bin/env bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0
exec vllm serve Qwen/Qwen2.5-7B-Instruct \
  --enable-lora \
  --max-lora-rank 16 \
  --lora-modules tickets=outputs/tickets-lora \
  --max-model-len 4096 \
  --port 8000 2>&1 | tee vllm.log
