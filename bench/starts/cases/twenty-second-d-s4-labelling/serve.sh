#!/usr/bin/env bash
set -euo pipefail
exec vllm serve Qwen/Qwen2.5-14B-Instruct \
  --served-model-name qwen14b \
  --dtype bfloat16 \
  --max-model-len 8192 \
  --max-num-seqs 256 \
  --gpu-memory-utilization 0.92 \
  --port 8000 2>&1 | tee vllm.log
