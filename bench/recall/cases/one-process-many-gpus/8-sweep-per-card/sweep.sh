#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=32
#SBATCH --time=06:00:00
set -e
RATES=(5e-5 1e-4 2e-4 3e-4)
for i in 0 1 2 3; do
  CUDA_VISIBLE_DEVICES=$i python train.py --lr "${RATES[$i]}" --out "out/lr-${RATES[$i]}" > "lr-${RATES[$i]}.log" 2>&1 &
done
wait
