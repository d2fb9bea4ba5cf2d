#!/usr/bin/env bash
set -euo pipefail
axolotl train alpaca.yml
axolotl merge-lora alpaca.yml --lora-model-dir ./outputs/letters
vllm serve ./outputs/letters/merged \
  --served-model-name letters \
  --dtype bfloat16 \
  --max-model-len 4096 \
  --port 8001
