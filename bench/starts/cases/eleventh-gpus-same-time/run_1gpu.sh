#!/usr/bin/env bash
set -e
export CUDA_VISIBLE_DEVICES=0
llamafactory-cli train configs/qwen3_8b_lora_1gpu.yaml 2>&1 | tee logs/train_1gpu.log
