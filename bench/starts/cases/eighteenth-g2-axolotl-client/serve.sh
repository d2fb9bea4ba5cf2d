#!/usr/bin/env bash
set -euo pipefail
axolotl merge-lora helpdesk.yml --lora-model-dir=./outputs/helpdesk-lora
vllm serve ./outputs/helpdesk-lora/merged \
  --served-model-name helpdesk \
  --dtype bfloat16 \
  --max-model-len 4096 \
  --port 8000
