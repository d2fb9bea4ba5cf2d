#!/bin/bash
set -e
export OMP_NUM_THREADS=8
export TORCH_NCCL_TRACE_BUFFER_SIZE=2000
torchrun --standalone --nproc_per_node=8 train_fsdp.py --data data/train.jsonl --out out/qwen7b 2>&1 | tee train.log
