#!/bin/bash
set -e
export HF_HOME=/scratch/hf
export TOKENIZERS_PARALLELISM=false
nohup accelerate launch --config_file fsdp.yaml train.py --epochs 2 --lr 1e-5 > nohup.out 2>&1 &
