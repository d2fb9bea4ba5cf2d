#!/bin/bash
# 8x H100, one box
set -euo pipefail
source /opt/venv/bin/activate
export OMP_NUM_THREADS=12
export TORCH_NCCL_ENABLE_MONITORING=1

torchrun --standalone --nproc-per-node 8 train.py \
    --data /data/legal_de/clean_v2 \
    --out /data/runs/llama31-legal-de \
    --bs 2 --accum 8 --lr 1e-5 2>&1 | tee train_8gpu.log
