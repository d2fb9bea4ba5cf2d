#!/bin/bash
#SBATCH --job-name=qwen3-helpdesk
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=12
#SBATCH --time=10:00:00
set -euo pipefail
source /opt/venvs/trl/bin/activate

trl sft \
  --model_name_or_path Qwen/Qwen3-4B-Instruct-2507 \
  --dataset_name acme/helpdesk-prompt-completion \
  --output_dir runs/qwen3-helpdesk \
  --num_train_epochs 2 \
  --per_device_train_batch_size 4 \
  --gradient_accumulation_steps 4 \
  --learning_rate 2e-4 \
  --lr_scheduler_type cosine \
  --warmup_steps 50 \
  --max_length 2048 \
  --bf16 true \
  --gradient_checkpointing true \
  --use_peft \
  --lora_r 16 \
  --lora_alpha 32 \
  --lora_dropout 0.05 \
  --lora_target_modules c_attn c_proj c_fc \
  --logging_steps 10 \
  --save_strategy epoch \
  --report_to none
