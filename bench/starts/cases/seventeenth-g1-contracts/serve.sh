#!/bin/bash
# a100 box
source ~/venvs/vllm/bin/activate
vllm serve models/llama3-8b-contracts \
    --served-model-name contracts \
    --dtype bfloat16 \
    --max-model-len 8192 \
    --gpu-memory-utilization 0.90 \
    --port 8000
