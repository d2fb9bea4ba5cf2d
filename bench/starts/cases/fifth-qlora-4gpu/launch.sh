#!/bin/bash
set -e
source ~/envs/triage/bin/activate
export TOKENIZERS_PARALLELISM=false
export CUDA_VISIBLE_DEVICES=0,1,2,3

accelerate launch --multi_gpu --num_processes 4 --num_machines 1 --mixed_precision bf16 \
    --main_process_port 29511 \
    train_triage.py --epochs 2 --out runs/triage-4gpu 2>&1 | tee launch.log
