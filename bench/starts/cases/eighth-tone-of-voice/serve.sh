#!/usr/bin/env bash
set -e
python merge.py
exec vllm serve out/tone-merged --served-model-name tone --max-model-len 8192 --gpu-memory-utilization 0.9 --port 8000
