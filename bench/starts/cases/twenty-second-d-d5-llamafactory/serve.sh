#!/usr/bin/env bash
# before: 8000, after: 8001
CUDA_VISIBLE_DEVICES=0 vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --dtype bfloat16 --max-model-len 8192 --port 8000 > base.log 2>&1 &

CUDA_VISIBLE_DEVICES=1 vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --dtype bfloat16 --max-model-len 8192 --port 8001 \
  --enable-lora --max-lora-rank 16 \
  --lora-modules hallmark-dpo=saves/hallmark-dpo > dpo.log 2>&1 &
wait
