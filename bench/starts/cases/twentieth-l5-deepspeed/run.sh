#!/usr/bin/env bash
set -euo pipefail
export NCCL_DEBUG=WARN
deepspeed --num_gpus 8 train_ds.py \
  --model_name meta-llama/Llama-3.1-8B \
  --train_file packed_4k.npy \
  --lr 1e-5 --epochs 1 --micro_batch 2 \
  --ds_config ds_config.json 2>&1 | tee train.log
