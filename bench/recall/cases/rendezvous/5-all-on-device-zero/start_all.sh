#!/usr/bin/env bash
# box with 4x A100 80GB; one process per rank, logs apart
set -euo pipefail
mkdir -p logs
export MASTER_ADDR=127.0.0.1
export MASTER_PORT=29517
export WORLD_SIZE=4

for r in 0 1 2 3; do
  CUDA_VISIBLE_DEVICES=0 RANK=$r LOCAL_RANK=0 \
    python ddp.py --out runs/ddp > logs/rank$r.log 2>&1 &
done
wait
