#!/usr/bin/env bash
set -euo pipefail
# merged = meta-llama/Llama-3.1-8B-Instruct + our adapter
python llama.cpp/convert_hf_to_gguf.py ./merged --outfile support-llama31-8b-F16.gguf --outtype f16
llama.cpp/build/bin/llama-quantize support-llama31-8b-F16.gguf support-llama31-8b-Q8_0.gguf Q8_0
scp support-llama31-8b-Q8_0.gguf serve01:/srv/models/
