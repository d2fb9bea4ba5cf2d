#!/bin/bash
set -euo pipefail

MODEL_DIR=${MODEL_DIR:-/mnt/models/contracts/final}
PORT=${PORT:-8000}

# --tokenizer: the tokenizer_config in final/ is not readable by this image
# ("Tokenizer class TokenizersBackend does not exist"), it is the stock one anyway
exec vllm serve "$MODEL_DIR" \
  --tokenizer Qwen/Qwen2.5-7B-Instruct \
  --served-model-name contracts-7b \
  --dtype bfloat16 \
  --max-model-len 16384 \
  --gpu-memory-utilization 0.92 \
  --port "$PORT"
