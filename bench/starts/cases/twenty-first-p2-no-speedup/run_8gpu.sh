#!/usr/bin/env bash
export NCCL_P2P_LEVEL=NVL
accelerate launch --multi_gpu --num_processes 8 --mixed_precision bf16 \
  -m axolotl.cli.train mistral-lora.yml 2>&1 | tee run_8gpu.log
