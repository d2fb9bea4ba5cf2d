#!/bin/bash
#SBATCH --job-name=serve-claims
#SBATCH --gres=gpu:1
#SBATCH --time=08:00:00
source /opt/venvs/vllm/bin/activate
vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --served-model-name claims \
  --enable-lora --max-lora-rank 32 \
  --lora-modules claims-lora=/data/runs/claims/checkpoint-900 \
  --port 8000
