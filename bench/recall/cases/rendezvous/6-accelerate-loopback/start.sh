#!/usr/bin/env bash
# gpu-a: ./start.sh node0.yaml     gpu-b: ./start.sh node1.yaml     (4x A100 80GB each)
set -euo pipefail
export HF_HOME=/shared/hf
accelerate launch --config_file "$1" -m trl.scripts.sft \
  --model_name_or_path Qwen/Qwen3-8B \
  --dtype bfloat16 \
  --dataset_name trl-lib/Capybara \
  --assistant_only_loss True \
  --use_peft --lora_r 16 --lora_alpha 32 --lora_target_modules all-linear \
  --learning_rate 1e-4 \
  --lr_scheduler_type cosine \
  --warmup_steps 10 \
  --num_train_epochs 1 \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 1 \
  --gradient_checkpointing True \
  --max_length 2048 \
  --bf16 True \
  --eval_strategy steps --eval_steps 200 \
  --save_steps 200 --save_total_limit 1 \
  --logging_steps 10 \
  --output_dir /shared/runs/q8 \
  --report_to none
