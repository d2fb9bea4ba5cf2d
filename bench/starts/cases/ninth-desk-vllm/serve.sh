#!/usr/bin/env bash
# front desk assistant, merged Llama 3.1 8B, one A100 40GB (the card is ours alone since July)
set -euo pipefail

export CUDA_VISIBLE_DEVICES=0
export VLLM_LOGGING_LEVEL=INFO

exec vllm serve /srv/models/desk-llama-3.1-8b \
    --served-model-name desk \
    --dtype bfloat16 \
    --max-model-len 8192 \
    --gpu-memory-utilization 0.45 \
    --max-num-seqs 128 \
    --port 8010
