#!/usr/bin/env bash
set -e
python sft_custom_optim.py \
  --model_name Qwen/Qwen2.5-7B-Instruct \
  --train_file data/contracts.jsonl \
  --output_dir out/contracts \
  --learning_rate 1e-4 \
  --num_train_epochs 2 \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 8 \
  --gradient_checkpointing true \
  --max_length 2048 \
  --bf16 true \
  --logging_steps 10 \
  --save_strategy epoch \
  --report_to none
