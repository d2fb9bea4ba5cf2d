#!/usr/bin/env bash
# box: 4x RTX 4090, no nvlink
cd /home/lena/faqbot
source .venv/bin/activate
export CUDA_VISIBLE_DEVICES=0,1,2,3
export TOKENIZERS_PARALLELISM=false
nohup python finetune.py > train_4gpu.log 2>&1 &
echo $! > train.pid
