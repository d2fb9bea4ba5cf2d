#!/bin/bash
set -e
export TOKENIZERS_PARALLELISM=false
accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 finetune.py --epochs 3 --lr 1e-5 2>&1 | tee train-4gpu.log
