#!/bin/bash
set -e
export TOKENIZERS_PARALLELISM=false
accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 train.py --epochs 3 2>&1 | tee train.log
