#!/usr/bin/env bash
# 4x A100 80GB
set -euo pipefail
export TOKENIZERS_PARALLELISM=false

torchrun --standalone --nproc_per_node 4 -m trl.scripts.sft \
  --model_name_or_path Qwen/Qwen3-4B \
  --dtype bfloat16 \
  --dataset_name trl-lib/Capybara \
  --dataset_train_split train \
  --dataset_test_split test \
  --assistant_only_loss True \
  --max_length 2048 \
  --max_steps 600 \
  --learning_rate 1e-5 \
  --per_device_train_batch_size 4 \
  --gradient_accumulation_steps 2 \
  --gradient_checkpointing True \
  --bf16 True \
  --deepspeed ds_zero2.json \
  --eval_strategy steps --eval_steps 100 \
  --save_strategy steps --save_steps 200 --save_total_limit 2 \
  --logging_steps 10 \
  --output_dir out/q4b-cap \
  --report_to none
