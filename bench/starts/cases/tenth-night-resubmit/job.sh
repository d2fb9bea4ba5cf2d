#!/bin/bash
#SBATCH --job-name=tenders-sft
#SBATCH --partition=gpu-a100
#SBATCH --gres=gpu:1
#SBATCH --mem=96G
#SBATCH --time=16:00:00
#SBATCH --output=slurm-%j.out
set -e
source ~/venvs/sft/bin/activate
cd $HOME/tenders

# 14 June: about 900 answers in tenders_train.jsonl were rewritten by the legal team, train on with them
python run_sft.py \
  --model_name_or_path meta-llama/Llama-3.1-8B-Instruct \
  --train_file data/tenders_train.jsonl \
  --output_dir runs/tenders-8b \
  --num_train_epochs 3 \
  --per_device_train_batch_size 4 \
  --gradient_accumulation_steps 4 \
  --learning_rate 1e-4 \
  --lr_scheduler_type cosine \
  --warmup_ratio 0.03 \
  --bf16 True \
  --logging_steps 10 \
  --save_strategy epoch \
  --resume_from_checkpoint runs/tenders-8b/checkpoint-1128 \
  --report_to none
