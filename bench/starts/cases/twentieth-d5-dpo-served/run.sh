#!/bin/bash
set -e
# 1. sft.py wrote outputs/sft, merge.py wrote outputs/sft-merged (Qwen2.5-7B-Instruct + ticket format)
accelerate launch --num_processes 4 train_dpo.py \
  --output_dir outputs/dpo --beta 0.1 --learning_rate 1e-5 --lr_scheduler_type cosine --warmup_ratio 0.1 \
  --num_train_epochs 1 --per_device_train_batch_size 2 --gradient_accumulation_steps 2 \
  --max_length 1024 --max_prompt_length 512 --bf16 --gradient_checkpointing \
  --logging_steps 10 --save_strategy epoch --report_to none
