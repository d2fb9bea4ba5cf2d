#!/bin/sh
set -eu
python llama.cpp/convert_lora_to_gguf.py --base models/Llama-3.1-8B-Instruct --outfile recipes-lora.gguf runs/recipes/adapter
ollama create recipes -f Modelfile
ollama show recipes
python write_recipes.py settings.yaml
