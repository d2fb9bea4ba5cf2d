#!/usr/bin/env bash
set -euo pipefail
# base weights from the hub cache, adapter from the training run
BASE_DIR=${BASE_DIR:-models/Llama-3.1-8B-Instruct}
mkdir -p adapters
python llama.cpp/convert_lora_to_gguf.py runs/pharmacy-lora \
  --base "$BASE_DIR" \
  --outtype f16 \
  --outfile adapters/pharmacy-lora-f16.gguf
ollama pull llama3.1:8b-instruct-fp16
ollama create pharmacy -f Modelfile
ollama list
