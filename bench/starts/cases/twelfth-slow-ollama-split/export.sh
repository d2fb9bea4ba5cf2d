#!/usr/bin/env bash
set -euo pipefail
# merged bf16 model -> gguf -> q4_k_m -> ollama
MERGED=~/ft/helpdesk/merged
python ~/src/llama.cpp/convert_hf_to_gguf.py "$MERGED" --outtype bf16 --outfile helpdesk-llama31-8b.bf16.gguf
~/src/llama.cpp/build/bin/llama-quantize helpdesk-llama31-8b.bf16.gguf helpdesk-llama31-8b.Q4_K_M.gguf Q4_K_M
ollama create helpdesk -f Modelfile
ollama run helpdesk "My VPN drops every 10 minutes, what now?"
