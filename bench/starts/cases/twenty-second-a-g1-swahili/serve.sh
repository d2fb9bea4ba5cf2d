#!/bin/bash
set -e
python merge.py
vllm serve merged/mshauri-7b --served-model-name mshauri --dtype bfloat16 --max-model-len 4096 --port 8000
