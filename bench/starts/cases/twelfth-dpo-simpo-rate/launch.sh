#!/bin/bash
#SBATCH -N 1
#SBATCH --gres=gpu:8
#SBATCH -t 12:00:00
#SBATCH -o logs/simpo-%j.log
srun accelerate launch --config_file zero3.yaml --num_processes 8 simpo.py
