#!/bin/bash
set -e
export CUDA_VISIBLE_DEVICES=0

vllm serve Qwen/Qwen2.5-7B-Instruct \
  --enable-lora \
  --lora-modules support=/data/adapters/support-lora \
  --max-lora-rank 32 \
  --max-model-len 8192 \
  --gpu-memory-utilization 0.9 \
  --port 8000
