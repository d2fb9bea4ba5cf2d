#!/bin/bash
# L40S box, port 8000
vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --dtype bfloat16 \
  --max-model-len 8192 \
  --enable-lora \
  --max-lora-rank 32 \
  --lora-modules l31-dpo=./out/l31-dpo
