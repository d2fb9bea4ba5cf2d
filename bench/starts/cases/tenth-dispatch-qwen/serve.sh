#!/usr/bin/env bash
# merged with: llamafactory-cli export merge_dispatch.yaml
set -euo pipefail
vllm serve /models/merged/qwen2.5-7b-dispatch \
  --served-model-name dispatch \
  --max-model-len 4096 --gpu-memory-utilization 0.9 --port 8011
