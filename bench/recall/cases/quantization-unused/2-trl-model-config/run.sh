#!/bin/bash
CUDA_VISIBLE_DEVICES=0 python sft.py \
  --model_name_or_path Qwen/Qwen2.5-7B-Instruct \
  --dataset_name trl-lib/Capybara \
  --load_in_4bit true --bnb_4bit_quant_type nf4 --use_bnb_nested_quant true --dtype bfloat16 \
  --use_peft true --lora_r 16 --lora_alpha 32 --lora_target_modules all-linear \
  --learning_rate 2e-4 --num_train_epochs 1 --warmup_steps 20 \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --gradient_checkpointing true \
  --max_length 2048 --bf16 true --logging_steps 10 --output_dir out/capybara --report_to none
