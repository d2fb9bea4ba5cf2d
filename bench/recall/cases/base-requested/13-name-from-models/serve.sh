#!/usr/bin/env bash
set -euo pipefail
vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --enable-lora \
  --lora-modules tickets=/srv/models/tickets-lora \
  --max-lora-rank 16 \
  --max-model-len 8192 \
  --port 8000
