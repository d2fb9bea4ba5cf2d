#!/usr/bin/env bash
# 4x A100 80GB
set -euo pipefail

torchrun --standalone --nproc_per_node 4 -m trl.scripts.sft \
  --model_name_or_path Qwen/Qwen3-4B \
  --dtype bfloat16 \
  --dataset_name trl-lib/Capybara \
  --assistant_only_loss True \
  --max_length 2048 \
  --num_train_epochs 1 \
  --learning_rate 1e-5 \
  --lr_scheduler_type cosine \
  --warmup_steps 20 \
  --max_grad_norm 1.0 \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 4 \
  --gradient_checkpointing True \
  --bf16 True \
  --deepspeed ds.json \
  --eval_strategy steps --eval_steps 100 \
  --save_steps 200 --save_total_limit 2 \
  --logging_steps 5 \
  --output_dir runs/q4 \
  --report_to none
