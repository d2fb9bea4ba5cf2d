#!/bin/bash
# 2026-11-03  first run, 4 GPUs
# 2026-11-17  moved to the new node, 8 GPUs
export WANDB_MODE=offline
export TOKENIZERS_PARALLELISM=false

deepspeed --num_gpus 8 --master_port 29611 train_letters.py \
    --model_name_or_path Qwen/Qwen2.5-7B-Instruct \
    --train_file data/letters_train.jsonl \
    --output_dir out/letters-7b \
    --deepspeed ds_zero2.json \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 8 \
    --learning_rate 1e-5 \
    --num_train_epochs 2 \
    --warmup_ratio 0.03 \
    --lr_scheduler_type cosine \
    --bf16 True \
    --gradient_checkpointing True \
    --logging_steps 5 \
    --save_strategy epoch \
    --report_to wandb 2>&1 | tee letters-8gpu.log
