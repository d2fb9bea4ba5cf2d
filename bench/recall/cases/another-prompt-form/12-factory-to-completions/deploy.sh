#!/usr/bin/env bash
set -e
llamafactory-cli train train.yaml
vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --enable-lora --max-lora-rank 16 \
  --lora-modules travel=saves/travel/lora \
  --max-model-len 8192
