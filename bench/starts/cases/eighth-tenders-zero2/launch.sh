#!/usr/bin/env bash
# worked on the two-card machine of Jelena; this one has four
set -euo pipefail
export TOKENIZERS_PARALLELISM=false
export WANDB_PROJECT=tenders

deepspeed --num_gpus 4 train_tenders.py \
    --deepspeed ds_zero2.json \
    --model Qwen/Qwen2.5-7B-Instruct \
    --train_file data/tenders_train.jsonl \
    --max_length 3072 \
    --output_dir out/tenders-7b \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 2 \
    --gradient_checkpointing True \
    --num_train_epochs 3 \
    --learning_rate 1e-5 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.03 \
    --bf16 True \
    --logging_steps 5 \
    --save_strategy epoch \
    --save_only_model True \
    --report_to wandb 2>&1 | tee train.log
