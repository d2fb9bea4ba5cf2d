#!/bin/bash
# after merge_adapter.py
export CUDA_VISIBLE_DEVICES=0
python merge_adapter.py runs/patents-qlora/checkpoint-1860 export/patents-merged 2>&1 | tee merge.log
vllm serve export/patents-merged \
    --served-model-name patents \
    --max-model-len 8192 \
    --gpu-memory-utilization 0.92 \
    --port 8011
