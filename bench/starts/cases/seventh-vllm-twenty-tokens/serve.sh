#!/usr/bin/env bash
# serve the tuned 3B model for the autocomplete service (1 x L40S)
set -euo pipefail

MODEL=${MODEL:-/models/autocomplete-3b-merged}
PORT=${PORT:-8000}

export VLLM_LOGGING_LEVEL=INFO
export CUDA_VISIBLE_DEVICES=0

exec vllm serve "$MODEL" \
    --served-model-name autocomplete-3b \
    --host 0.0.0.0 --port "$PORT" \
    --dtype bfloat16 \
    --max-model-len 8192 \
    --gpu-memory-utilization 0.90 \
    --enforce-eager \
    --max-num-seqs 64 \
    2>&1 | tee vllm.log
