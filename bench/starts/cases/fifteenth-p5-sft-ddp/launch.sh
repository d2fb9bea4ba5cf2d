#!/usr/bin/env bash
export CUDA_VISIBLE_DEVICES=0,1,2,3
export TOKENIZERS_PARALLELISM=false
torchrun --nproc_per_node 4 --master_port 29600 train_sft.py 2>&1 | tee train_4gpu.log
