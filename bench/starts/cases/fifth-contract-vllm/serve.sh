#!/usr/bin/env bash
# one A10G, port 8000
set -euo pipefail
export VLLM_WORKER_MULTIPROC_METHOD=spawn
vllm serve Qwen/Qwen2.5-7B-Instruct \
    --enable-lora \
    --lora-modules desk=outputs/desk-lora \
    --max-lora-rank 16 \
    --max-model-len 4096 \
    --gpu-memory-utilization 0.90 \
    --port 8000
