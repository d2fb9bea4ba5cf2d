#!/usr/bin/env bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0,1,2,3
accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 train.py --lr 1e-4 "$@"
