#!/bin/bash
ACC=16
CUDA_VISIBLE_DEVICES=0 python main.py \
  --output_dir out/intents --learning_rate 2e-4 --num_train_epochs 2 \
  --per_device_train_batch_size 1 --gradient_accumulation_steps $ACC \
  --max_length 1024 --bf16 true --warmup_steps 20 --logging_steps 10 \
  --completion_only_loss true --save_strategy epoch --report_to none
