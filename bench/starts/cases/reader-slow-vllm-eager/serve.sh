#!/usr/bin/env bash
set -euo pipefail
MODEL=/models/llama31-8b-support-merged

# H100 80GB, one card
export VLLM_LOGGING_LEVEL=INFO
exec vllm serve "$MODEL" \
  --served-model-name support \
  --host 0.0.0.0 --port 8000 \
  --dtype bfloat16 \
  --max-model-len 8192 \
  --gpu-memory-utilization 0.90 \
  --enforce-eager \
  --max-num-seqs 1
