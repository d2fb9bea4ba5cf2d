#!/usr/bin/env bash
set -euo pipefail
export HF_HOME=/data/hf
export WANDB_MODE=offline

torchrun --standalone --nproc_per_node 8 sft_zero3.py \
  --model_name_or_path Qwen/Qwen2.5-7B-Instruct \
  --attn_implementation flash_attention_2 \
  --dataset_name /data/sft/insurance_v2.jsonl \
  --output_dir /data/runs/qwen7b-ins \
  --deepspeed ds_z3.json \
  --bf16 true \
  --per_device_train_batch_size 2 \
  --per_device_eval_batch_size 2 \
  --gradient_accumulation_steps 4 \
  --gradient_checkpointing true \
  --learning_rate 1e-5 \
  --lr_scheduler_type cosine \
  --warmup_ratio 0.03 \
  --num_train_epochs 2 \
  --max_length 4096 \
  --logging_steps 10 \
  --eval_strategy steps --eval_steps 100 \
  --save_strategy no \
  --seed 42 2>&1 | tee train.log
