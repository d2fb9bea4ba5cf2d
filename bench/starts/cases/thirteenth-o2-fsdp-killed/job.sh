#!/bin/bash
#SBATCH --job-name=q32b-fsdp
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=8
#SBATCH --constraint=h200
#SBATCH --cpus-per-task=64
#SBATCH --mem=400G
#SBATCH --time=12:00:00
#SBATCH --output=slurm-%j.out

source /scratch/envs/ft/bin/activate
export HF_HOME=/scratch/hf
export TOKENIZERS_PARALLELISM=false
cd $SLURM_SUBMIT_DIR
set -x
accelerate launch --config_file fsdp.yaml train_fsdp.py
