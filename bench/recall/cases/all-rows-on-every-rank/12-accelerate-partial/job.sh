#!/bin/bash
#SBATCH --job-name=tutor
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=64
#SBATCH --time=08:00:00
set -euo pipefail
source .venv/bin/activate
accelerate launch --multi_gpu --num_machines 1 --num_processes 8 --mixed_precision bf16 loop.py --out runs/tutor
