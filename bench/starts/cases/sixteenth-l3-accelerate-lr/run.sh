#!/usr/bin/env bash
set -euo pipefail
export NCCL_DEBUG=WARN
accelerate launch --config_file accelerate.yaml finetune.py --lr 1e-5 --epochs 3 --bs 4 --accum 2 2>&1 | tee train.log
