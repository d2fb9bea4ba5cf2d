#!/usr/bin/env bash
set -e
export HF_HUB_OFFLINE=1
export TOKENIZERS_PARALLELISM=false
torchrun --standalone --nproc_per_node=4 train_notes.py --epochs 6 2>&1 | tee train_4gpu.log
