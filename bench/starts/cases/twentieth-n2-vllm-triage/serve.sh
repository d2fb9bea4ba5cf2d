#!/usr/bin/env bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0
vllm serve Qwen/Qwen2.5-7B-Instruct \
  --enable-lora \
  --max-lora-rank 32 \
  --lora-modules triage=./outputs/triage-lora \
  --max-model-len 4096 \
  --enable-log-requests \
  --port 8000 2>&1 | tee vllm.log
