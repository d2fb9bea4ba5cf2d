#!/usr/bin/env bash
set -e
cd "$(dirname "$0")"
export CUDA_VISIBLE_DEVICES=0,1,2,3
export OMP_NUM_THREADS=8
ARGS="--model Qwen/Qwen2.5-3B --data /data/tech-docs/train.bin --block 2048 --batch 2 --accum 8 --epochs 3 --out ckpt"
if [ -f ckpt/last.pt ]; then
  ARGS="$ARGS --resume ckpt/last.pt"
fi
torchrun --standalone --nproc_per_node=4 train_ddp.py $ARGS 2>&1 | tee -a run.log
