#!/bin/bash
python train.py --output_dir out/plays --learning_rate 1e-4 --num_train_epochs 3 \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --bf16 true \
  --lr_scheduler_type cosine --warmup_steps 20 --logging_steps 10 --save_strategy epoch --report_to none
