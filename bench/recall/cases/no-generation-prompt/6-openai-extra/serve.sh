#!/usr/bin/env bash
set -e
vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --enable-lora \
  --lora-modules topics-llama=/models/topics-lora \
  --max-lora-rank 16 \
  --max-model-len 4096 \
  --port 8000
