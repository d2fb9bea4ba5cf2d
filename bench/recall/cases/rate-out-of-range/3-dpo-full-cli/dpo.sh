#!/usr/bin/env bash
# 8x H100 80GB, one node
set -euo pipefail

BASE=allenai/Llama-3.1-Tulu-3-8B-SFT
LR=1e-4
BETA=0.1
OUT=runs/tulu3-dpo

accelerate launch --config_file zero3.yaml -m trl.scripts.dpo \
  --model_name_or_path "$BASE" \
  --dtype bfloat16 \
  --dataset_name trl-lib/ultrafeedback_binarized \
  --dataset_train_split train \
  --dataset_test_split test \
  --beta "$BETA" \
  --learning_rate "$LR" \
  --lr_scheduler_type cosine \
  --warmup_steps 50 \
  --num_train_epochs 1 \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 4 \
  --gradient_checkpointing True \
  --max_length 2048 \
  --bf16 True \
  --eval_strategy steps --eval_steps 100 \
  --save_strategy steps --save_steps 200 --save_total_limit 2 \
  --logging_steps 10 \
  --seed 42 \
  --output_dir "$OUT" \
  --report_to none
