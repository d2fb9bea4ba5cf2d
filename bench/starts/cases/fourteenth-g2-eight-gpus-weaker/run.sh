#!/usr/bin/env bash
set -e
# node with 8x H100, before that CUDA_VISIBLE_DEVICES=0 on the workstation
export FORCE_TORCHRUN=1
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
llamafactory-cli train qwen3_lora.yaml 2>&1 | tee train.out
