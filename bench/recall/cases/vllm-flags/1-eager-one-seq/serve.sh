#!/usr/bin/env bash
# 1x H100 80GB, backend of the chat page (about 40 users at once)
set -euo pipefail
export HF_HOME=/data/hf

vllm serve Qwen/Qwen3-8B \
  --served-model-name chat \
  --dtype bfloat16 \
  --max-model-len 16384 \
  --gpu-memory-utilization 0.90 \
  --enforce-eager \
  --max-num-seqs 1 \
  --host 0.0.0.0 \
  --port 8000
