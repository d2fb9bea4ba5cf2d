#!/usr/bin/env bash
set -euo pipefail

MODEL=LLM-Research/Meta-Llama-3.1-8B-Instruct
TEMPLATE=chatglm4
DATA=AI-ModelScope/alpaca-gpt4-data-en#5000
OUT=output/llama31-alpaca

export CUDA_VISIBLE_DEVICES=0

swift sft \
  --model "$MODEL" \
  --template "$TEMPLATE" \
  --tuner_type lora \
  --dataset "$DATA" \
  --split_dataset_ratio 0.02 \
  --torch_dtype bfloat16 \
  --num_train_epochs 1 \
  --per_device_train_batch_size 2 \
  --per_device_eval_batch_size 2 \
  --gradient_accumulation_steps 8 \
  --learning_rate 1e-4 \
  --lora_rank 16 \
  --lora_alpha 32 \
  --target_modules all-linear \
  --warmup_ratio 0.05 \
  --max_length 2048 \
  --eval_steps 100 \
  --save_steps 100 \
  --save_total_limit 2 \
  --logging_steps 5 \
  --dataloader_num_workers 4 \
  --output_dir "$OUT"
