#!/usr/bin/env bash
# clause assistant, our tuned Qwen2.5-32B, quantised with AutoAWQ (w4, group 128, GEMM)
set -eu
export HF_HUB_OFFLINE=1
export VLLM_LOGGING_LEVEL=INFO

exec vllm serve /models/clauses-qwen32b-awq \
    --served-model-name clauses \
    --host 0.0.0.0 --port 8000 \
    --quantization awq \
    --dtype float16 \
    --max-model-len 8192 \
    --max-num-seqs 64 \
    --gpu-memory-utilization 0.92 \
    --enable-prefix-caching
