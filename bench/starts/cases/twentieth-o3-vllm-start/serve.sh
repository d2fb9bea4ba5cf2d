#!/bin/bash
source /data/envs/vllm/bin/activate
export CUDA_VISIBLE_DEVICES=1
exec vllm serve /data/models/support-qwen2.5-7b-merged \
    --served-model-name support \
    --dtype bfloat16 \
    --max-model-len 8192 \
    --gpu-memory-utilization 0.90 \
    --port 8100
