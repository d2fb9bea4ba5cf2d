#!/bin/bash
set -e
source ~/envs/ft/bin/activate
export OMP_NUM_THREADS=8
torchrun --standalone --nproc_per_node=4 train_ddp.py --data data/train.jsonl --out /scratch/ckpt/qwen3b-desk --epochs 3 --bs 8 2>&1 | tee run.log
