#!/bin/bash
set -e
export TOKENIZERS_PARALLELISM=false
torchrun --standalone --nproc_per_node=4 train.py \
    --model Qwen/Qwen2.5-7B-Instruct \
    --train_file data/train.jsonl \
    --output_dir out/qwen7b-support
