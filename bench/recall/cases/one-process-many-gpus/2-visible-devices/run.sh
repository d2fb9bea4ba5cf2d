#!/bin/bash
set -e
export TOKENIZERS_PARALLELISM=false
export WANDB_MODE=offline

CUDA_VISIBLE_DEVICES=0,1,2,3 python finetune.py \
    --model_name Qwen/Qwen2.5-3B-Instruct \
    --data_file data/summaries.jsonl \
    --output_dir out/summaries \
    --learning_rate 2e-4 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 4 \
    --num_train_epochs 2 \
    --bf16 true \
    --warmup_steps 30 \
    --logging_steps 10 \
    --save_strategy epoch \
    --report_to none
