#!/bin/bash
# RTX 4090 24 GB
vllm serve /models/qwen2.5-14b-support-merged-awq \
  --served-model-name support \
  --quantization awq_marlin \
  --max-model-len 32768 \
  --gpu-memory-utilization 0.55 \
  --max-num-seqs 256 \
  --enable-prefix-caching \
  --port 8000 2>&1 | tee vllm.log
