#!/usr/bin/env bash
set -euo pipefail
vllm serve merged/contracts-v3 \
  --served-model-name contracts \
  --dtype bfloat16 \
  --max-model-len 8192 \
  --port 8001
