#!/bin/bash
set -e
cd /home/ml/notes-extract
CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen2.5-1.5B-Instruct \
  --enable-lora --max-lora-rank 16 \
  --lora-modules notes-dpo=outputs/dpo-lora \
  --max-model-len 4096 --port 8001
