#!/usr/bin/env bash
set -euo pipefail
ADAPTER=/srv/adapters/contracts-r32

exec vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --dtype bfloat16 \
  --max-model-len 8192 \
  --gpu-memory-utilization 0.9 \
  --enable-lora \
  --max-lora-rank 32 \
  --lora-modules contracts="$ADAPTER" \
  --port 8000
