#!/usr/bin/env bash
# DPO on the editors' choices (3,002 pairs), Mistral 7B Instruct, 2x A100
set -euo pipefail
cd "$(dirname "$0")"
source ../venv/bin/activate
export WANDB_MODE=disabled

trl dpo \
  --num_processes 2 \
  --model_name_or_path mistralai/Mistral-7B-Instruct-v0.3 \
  --dtype bfloat16 \
  --dataset_name ./editor_pairs \
  --dataset_train_split train \
  --output_dir runs/editor-dpo \
  --use_peft --lora_r 16 --lora_alpha 32 --lora_dropout 0.0 \
  --lora_target_modules q_proj k_proj v_proj o_proj gate_proj up_proj down_proj \
  --beta 0.1 \
  --learning_rate 5e-6 \
  --lr_scheduler_type cosine \
  --warmup_steps 500 \
  --num_train_epochs 1 \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 8 \
  --gradient_checkpointing \
  --max_length 2048 \
  --bf16 \
  --logging_steps 2 \
  --save_strategy epoch 2>&1 | tee run_1114.log
