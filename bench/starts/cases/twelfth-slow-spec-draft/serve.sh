#!/bin/bash
# usage: serve.sh <model dir or id> <served name>
# g6e.2xlarge (1x L40S)
MODEL=${1:-/models/llama31-8b-de-legal-merged}
NAME=${2:-legal-de}

exec vllm serve "$MODEL" \
  --served-model-name "$NAME" \
  --dtype bfloat16 \
  --max-model-len 16384 \
  --gpu-memory-utilization 0.90 \
  --speculative-config '{"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 5}' \
  --port 8000
