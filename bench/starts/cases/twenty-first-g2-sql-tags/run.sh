#!/usr/bin/env bash
set -euo pipefail
python finetune.py \
  --output_dir runs/sql-tags \
  --num_train_epochs 3 \
  --per_device_train_batch_size 4 \
  --gradient_accumulation_steps 4 \
  --learning_rate 1e-4 \
  --lr_scheduler_type cosine \
  --warmup_ratio 0.03 \
  --max_length 1024 \
  --bf16 true \
  --gradient_checkpointing true \
  --assistant_only_loss false \
  --logging_steps 10 \
  --save_strategy epoch \
  --report_to none
