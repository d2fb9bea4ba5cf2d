#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=4 NCCL_DEBUG=WARN
torchrun --standalone --nproc_per_node=4 train_ddp.py 2>&1 | tee run.log
