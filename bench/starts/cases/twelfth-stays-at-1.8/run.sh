#!/usr/bin/env bash
set -e
cd "$(dirname "$0")"
export TOKENIZERS_PARALLELISM=false
export CUDA_VISIBLE_DEVICES=0
accelerate launch --num_processes 1 --mixed_precision bf16 finetune.py \
  --train_file data/train.jsonl \
  --eval_file data/eval.jsonl \
  --lr 2e-4 --epochs 3 --batch_size 8 --accum 2 \
  --output_dir out/lora 2>&1 | tee train.log
