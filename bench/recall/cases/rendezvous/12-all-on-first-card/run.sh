#!/usr/bin/env bash
set -euo pipefail
export OMP_NUM_THREADS=4
torchrun --standalone --nproc_per_node=4 train.py
