#!/bin/bash
set -e
source ~/venvs/ft/bin/activate
export TOKENIZERS_PARALLELISM=false
export NCCL_DEBUG=WARN
# 4x L40S 48GB. one process alone (nproc 1) runs fine with 27 GB
torchrun --standalone --nproc_per_node=4 finetune_ddp.py \
    --train data/minutes.jsonl \
    --batch 1 --accum 8 --lr 1e-4 --epochs 3 \
    --out out/minutes-7b 2>&1 | tee run.log
