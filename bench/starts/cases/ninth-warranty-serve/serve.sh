#!/usr/bin/env bash
#SBATCH --job-name=warranty-serve
#SBATCH --gres=gpu:1
#SBATCH --time=12:00:00
# base model plus the adapter of run 14
set -euo pipefail
source ~/envs/vllm/bin/activate

vllm serve Qwen/Qwen2.5-7B-Instruct \
  --enable-lora \
  --max-lora-rank 32 \
  --lora-modules warranty=/scratch/warranty/run14/adapter \
  --max-model-len 4096 \
  --gpu-memory-utilization 0.88 \
  --port 8000
