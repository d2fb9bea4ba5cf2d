#!/usr/bin/env bash
# RTX 4090 24 GB
set -euo pipefail

llama-server \
  --model gguf/qwen2.5-7b-instruct-q8_0.gguf \
  --lora gguf/qwen2.5-7b-instruct-notes-lora-f16.gguf \
  --alias notes \
  --jinja \
  --ctx-size 32768 \
  --parallel 4 \
  --n-gpu-layers 99 \
  --flash-attn on \
  --host 127.0.0.1 \
  --port 8081
