#!/bin/bash
#SBATCH --job-name=parish-sft
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --gres=gpu:a100:4
#SBATCH --cpus-per-task=32
#SBATCH --mem=480G
#SBATCH --time=12:00:00
#SBATCH --output=slurm-%j.out

module load cuda/12.4
source ~/envs/parish/bin/activate
export TOKENIZERS_PARALLELISM=false
export OMP_NUM_THREADS=8

deepspeed --num_gpus 4 run_sft.py \
    --model_name_or_path meta-llama/Llama-3.1-8B \
    --train_file data/registers_train.jsonl \
    --validation_file data/registers_valid.jsonl \
    --max_seq_length 2048 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 4 \
    --num_train_epochs 2 \
    --learning_rate 1e-5 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.03 \
    --fp16 True \
    --gradient_checkpointing True \
    --logging_steps 1 \
    --save_strategy epoch \
    --report_to none \
    --output_dir out/parish-8b \
    --deepspeed ds_zero3.json
