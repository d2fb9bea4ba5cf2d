#!/bin/bash
docker run --gpus all -p 8000:8000 -v $PWD/outputs:/outputs vllm/vllm-openai:v0.9.2 \
  --model Qwen/Qwen2.5-7B-Instruct --dtype bfloat16 --max-model-len 4096 \
  --enable-lora --max-lora-rank 32 --lora-modules tickets=/outputs/dpo
