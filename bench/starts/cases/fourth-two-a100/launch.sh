#!/bin/bash
# both A100s of the workstation
source ~/venvs/ft/bin/activate
export CUDA_VISIBLE_DEVICES=0,1
export TOKENIZERS_PARALLELISM=false
export OUT=out/contract-qa-2gpu

accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision bf16 --dynamo_backend no \
    train_qlora.py 2>&1 | tee logs/contract-qa-2gpu.log
