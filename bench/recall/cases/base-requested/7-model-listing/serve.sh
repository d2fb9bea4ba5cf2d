#!/bin/bash
set -e
vllm serve Qwen/Qwen2.5-7B-Instruct \
  --enable-lora \
  --lora-modules support=/data/adapters/support-lora \
  --max-lora-rank 32 \
  --max-model-len 8192 \
  --port 8000
