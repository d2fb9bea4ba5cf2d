#!/bin/bash
set -euo pipefail

python continue_recipes.py \
  --base_model Qwen/Qwen2.5-1.5B-Instruct \
  --previous_adapter out/recipes_v1 \
  --train_file data/recipes_v2.jsonl \
  --output_dir out/recipes_v2 \
  --learning_rate 1e-4 \
  --num_train_epochs 2 \
  --per_device_train_batch_size 8 \
  --gradient_accumulation_steps 2 \
  --lr_scheduler_type cosine \
  --warmup_steps 30 \
  --bf16 true \
  --logging_steps 10 \
  --save_strategy epoch \
  --report_to none
