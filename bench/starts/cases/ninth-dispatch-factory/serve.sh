#!/usr/bin/env bash
# merged with llamafactory-cli export, then served for the dispatch desk
set -euo pipefail
vllm serve /srv/models/qwen25-7b-dispatch \
  --served-model-name dispatch \
  --max-model-len 4096 \
  --gpu-memory-utilization 0.9 \
  --port 8010
# desk calls /v1/chat/completions, temperature 0.2
