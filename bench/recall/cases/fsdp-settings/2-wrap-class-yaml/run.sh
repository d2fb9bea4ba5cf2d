#!/usr/bin/env bash
# 8x A100 80GB
set -euo pipefail
accelerate launch --config_file fsdp.yaml -m trl.scripts.sft \
  --model_name_or_path Qwen/Qwen2.5-14B \
  --dtype bfloat16 \
  --dataset_name trl-lib/tldr \
  --dataset_train_split train \
  --dataset_test_split validation \
  --max_length 1024 \
  --max_steps 1000 \
  --learning_rate 1e-5 \
  --lr_scheduler_type cosine \
  --warmup_steps 50 \
  --per_device_train_batch_size 4 \
  --gradient_accumulation_steps 2 \
  --gradient_checkpointing False \
  --bf16 True \
  --eval_strategy steps --eval_steps 250 \
  --save_steps 500 --save_total_limit 1 \
  --logging_steps 10 \
  --output_dir runs/q14-tldr \
  --report_to none
