#!/bin/bash
#SBATCH --job-name=sft-top
#SBATCH --partition=gpu
#SBATCH --gres=gpu:a100:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=96G
#SBATCH --time=04:00:00
#SBATCH --output=slurm-%j.out

module load cuda/12.4
source $HOME/envs/trl/bin/activate
export HF_HOME=/scratch/$USER/hf
export MODEL=Qwen/Qwen2.5-7B-Instruct

srun python sft_last_layers.py
