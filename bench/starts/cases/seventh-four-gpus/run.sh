#!/bin/bash
# 4x L40S
set -e
export TOKENIZERS_PARALLELISM=false
export NCCL_P2P_DISABLE=0

deepspeed --num_gpus 4 train.py \
    --model meta-llama/Llama-3.1-8B-Instruct \
    --data data/support.jsonl \
    --output_dir outputs/llama31-support \
    --epochs 3 \
    --batch_size 2 --grad_accum 4 \
    --lr 1e-4 \
    --deepspeed ds_zero3.json 2>&1 | tee train.log
