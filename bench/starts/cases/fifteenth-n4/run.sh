#!/bin/bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0
export TOKENIZERS_PARALLELISM=false
# 2025-10: new product catalogue (v2 chats)
python finetune.py \
  --model_name mistralai/Mistral-7B-Instruct-v0.3 \
  --train_file data/support_v2.jsonl \
  --output_dir outputs/support-lora \
  --num_train_epochs 3 \
  --per_device_train_batch_size 8 \
  --gradient_accumulation_steps 2 \
  --learning_rate 1e-4 \
  --warmup_ratio 0.03 \
  --lr_scheduler_type cosine \
  --bf16 true \
  --gradient_checkpointing true \
  --logging_steps 25 \
  --save_steps 125 \
  --save_total_limit 2 \
  --report_to none 2>&1 | tee logs/support_v2.log
