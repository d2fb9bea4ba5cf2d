#!/usr/bin/env bash
export OMP_NUM_THREADS=8
torchrun --standalone --nproc_per_node=4 train_ddp.py --data data/reports.jsonl --out ckpt/qwen3-4b 2>&1 | tee train_ddp.log
