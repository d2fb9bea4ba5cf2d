#!/bin/bash
# one node, 4 x A100 40GB
export CUDA_VISIBLE_DEVICES=0,1,2,3
export NCCL_P2P_LEVEL=NVL
accelerate launch --num_processes 4 --mixed_precision bf16 -m axolotl.cli.train qwen_lora.yml
