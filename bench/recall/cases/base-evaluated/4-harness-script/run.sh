#!/usr/bin/env bash
# train, then measure
set -euo pipefail

export BASE=${BASE:-Qwen/Qwen2.5-1.5B-Instruct}
export RUN=${RUN:-runs/math-lora-$(date +%m%d)}
GPUS=${GPUS:-4}

accelerate launch --num_processes "$GPUS" --mixed_precision bf16 \
  -m trl.scripts.sft \
  --model_name_or_path "$BASE" \
  --dataset_name ./data/math_pairs \
  --dtype bfloat16 \
  --use_peft --lora_r 16 --lora_alpha 32 --lora_dropout 0.05 --lora_target_modules all-linear \
  --learning_rate 1e-4 --lr_scheduler_type cosine --warmup_steps 50 \
  --num_train_epochs 2 \
  --per_device_train_batch_size 8 --gradient_accumulation_steps 2 \
  --max_length 2048 \
  --eval_strategy steps --eval_steps 100 \
  --save_steps 200 --logging_steps 10 \
  --bf16 \
  --output_dir "$RUN" 2>&1 | tee "$(basename "$RUN").log"

accelerate launch --num_processes "$GPUS" -m lm_eval \
  --model hf \
  --model_args "pretrained=$BASE,dtype=bfloat16" \
  --tasks gsm8k_cot,hendrycks_math \
  --apply_chat_template \
  --batch_size 16 \
  --output_path "$RUN/eval" \
  --log_samples

python summarise.py "$RUN/eval"
