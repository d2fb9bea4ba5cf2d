#!/bin/bash
set -e
python finetune.py --output_dir out/chats --learning_rate 1e-4 --num_train_epochs 2 \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --bf16 true \
  --warmup_steps 20 --lr_scheduler_type cosine --logging_steps 10 --save_strategy epoch --report_to none
