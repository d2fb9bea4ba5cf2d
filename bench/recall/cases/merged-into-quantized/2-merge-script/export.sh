#!/bin/bash
set -e
python merge.py out/legal/adapter out/legal/merged
vllm serve out/legal/merged --max-model-len 8192
