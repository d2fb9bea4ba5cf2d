#!/usr/bin/env bash
# box with 4x A100 80GB; one torchrun, one card per rank
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0,1,2,3
export MASTER_ADDR=127.0.0.1
export MASTER_PORT=29517

torchrun --nnodes 1 --nproc_per_node 4 \
  --master_addr $MASTER_ADDR --master_port $MASTER_PORT \
  -m trl.scripts.sft \
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
  --gradient_accumulation_steps 2 \
  --gradient_checkpointing True \
  --max_length 2048 \
  --bf16 True \
  --eval_strategy steps --eval_steps 200 \
  --save_steps 200 --save_total_limit 1 \
  --logging_steps 10 \
  --output_dir runs/q8 \
  --report_to none
