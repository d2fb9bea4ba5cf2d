#!/bin/bash
#SBATCH --job-name=clinic-lora
#SBATCH --nodes=1
#SBATCH --gres=gpu:a100:4
#SBATCH --cpus-per-task=48
#SBATCH --mem=480G
#SBATCH --time=48:00:00
#SBATCH --output=train.log

source /opt/envs/lf/bin/activate
export HF_HOME=/mnt/hf
export OMP_NUM_THREADS=12
export FORCE_TORCHRUN=1
nvidia-smi -L
llamafactory-cli train sft.yaml
