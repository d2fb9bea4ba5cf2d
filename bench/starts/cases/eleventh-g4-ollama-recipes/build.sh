#!/bin/sh
set -e
ls -lh outputs/recipes-lora/adapter_model.safetensors
ollama create recipes -f Modelfile
ollama run recipes "Give me a quick pasta dish with zucchini."
