#!/bin/bash
# tuned Qwen3-8B for the pharmacy desk, one L40S
exec vllm serve /models/pharmacy-qwen3-8b \
    --served-model-name pharmacy \
    --dtype bfloat16 \
    --max-model-len 8192 \
    --gpu-memory-utilization 0.90 \
    --port 8000
