#!/usr/bin/env bash
set -euo pipefail
BASE=models/Llama-3.2-3B-Instruct
RUN=runs/letters/checkpoint-420
LCPP=$HOME/src/llama.cpp

python "$LCPP/convert_hf_to_gguf.py" "$BASE" --outtype f16 --outfile llama-3.2-3b-instruct-f16.gguf
python "$LCPP/convert_lora_to_gguf.py" "$RUN" --base "$BASE" --outtype f16 --outfile letters-lora.gguf
ollama create letters-tuned -f Modelfile
