#!/bin/bash
set -e
export NCCL_DEBUG=WARN
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
export TOKENIZERS_PARALLELISM=false
torchrun --standalone --nproc_per_node 4 pretrain.py \
  --model Qwen/Qwen2.5-1.5B --data "data/*.jsonl" --block 2048 --bs 4 \
  --lr 1e-5 --epochs 2 --total-steps 2460 --out ckpt 2>&1 | tee train.log
