#!/usr/bin/env bash
set -euo pipefail
export OMP_NUM_THREADS=8
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
torchrun --standalone --nproc_per_node=8 pretrain.py \
    --tokens /data/norwegian_web.bin --dir /ckpt/cpt-3b-no \
    ${RESUME:+--resume "$RESUME"} 2>&1 | tee -a logs/$(date +%m%d-%H%M).log
