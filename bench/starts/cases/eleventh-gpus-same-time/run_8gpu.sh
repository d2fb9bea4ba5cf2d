#!/usr/bin/env bash
set -e
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export NPROC_PER_NODE=8
FORCE_TORCHRUN=1 llamafactory-cli train configs/qwen3_8b_lora_8gpu.yaml 2>&1 | tee logs/train_8gpu.log
