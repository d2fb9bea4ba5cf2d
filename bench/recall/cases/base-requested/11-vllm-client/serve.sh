#!/usr/bin/env bash
set -euo pipefail

BASE=meta-llama/Llama-3.1-8B-Instruct
ADAPTER=/srv/models/tickets-lora

exec vllm serve "$BASE" \
  --enable-lora \
  --lora-modules tickets="$ADAPTER" \
  --max-lora-rank 16 \
  --max-model-len 8192 \
  --gpu-memory-utilization 0.9 \
  --port 8000
