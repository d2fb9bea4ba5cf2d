#!/bin/bash
#SBATCH --job-name=rag-sft
#SBATCH --gres=gpu:a100:1
#SBATCH --time=04:00:00
#SBATCH --output=slurm-%j.out

source .venv/bin/activate
python sft.py \
  --output_dir outputs/rag-sft \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 8 \
  --learning_rate 1e-4 \
  --lr_scheduler_type cosine \
  --warmup_ratio 0.05 \
  --num_train_epochs 3 \
  --logging_steps 2 \
  --bf16 true \
  --gradient_checkpointing true \
  --save_strategy epoch
