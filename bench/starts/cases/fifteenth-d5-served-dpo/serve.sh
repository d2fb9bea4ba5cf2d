#!/usr/bin/env bash
set -e
cd /srv/agent
exec vllm serve Qwen/Qwen2.5-7B-Instruct \
  --host 0.0.0.0 --port 8000 \
  --dtype bfloat16 \
  --max-model-len 8192 \
  --enable-lora \
  --max-lora-rank 16 \
  --lora-modules dpo=work/dpo-lora
