#!/bin/bash
vllm serve Qwen/Qwen2.5-7B-Instruct --port 8000 --dtype bfloat16 --max-model-len 4096 \
  --enable-lora --max-lora-rank 16 --lora-modules claims=/data/runs/claims-lora
