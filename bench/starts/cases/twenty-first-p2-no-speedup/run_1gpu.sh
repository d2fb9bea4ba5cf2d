#!/usr/bin/env bash
CUDA_VISIBLE_DEVICES=0 accelerate launch --num_processes 1 --mixed_precision bf16 \
  -m axolotl.cli.train mistral-lora.yml 2>&1 | tee run_1gpu.log
