#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

export CUDA_VISIBLE_DEVICES=0,1,2,3
export NCCL_DEBUG=WARN
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export DEEPSPEED_CONFIG=ds_zero3.json

accelerate launch \
    --num_machines 1 \
    --num_processes 4 \
    --mixed_precision bf16 \
    train.py \
    --model meta-llama/Llama-3.1-8B-Instruct \
    --data data/sft_train.parquet \
    --out /data/runs/llama31-8b-full \
    2>&1 | tee train.log
