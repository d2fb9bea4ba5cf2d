#!/bin/bash
export CUDA_VISIBLE_DEVICES=0
vllm serve /models/qwen2.5-7b-ticket-labeller \
  --served-model-name ticket-labeller \
  --dtype bfloat16 --max-model-len 8192 \
  --gpu-memory-utilization 0.90 --enable-prefix-caching \
  --port 8000 2>&1 | tee vllm.log
