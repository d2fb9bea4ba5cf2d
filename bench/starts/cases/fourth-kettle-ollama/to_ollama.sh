#!/usr/bin/env bash
set -e
llamafactory-cli export export_qwen.yaml
python ~/src/llama.cpp/convert_hf_to_gguf.py merged/brookhaven-7b --outfile merged/brookhaven-7b-f16.gguf --outtype f16
~/src/llama.cpp/build/bin/llama-quantize merged/brookhaven-7b-f16.gguf merged/brookhaven-7b-q5_k_m.gguf Q5_K_M
ollama create brookhaven -f Modelfile
ollama run brookhaven "How long does a refund take if I paid with PayPal?"
