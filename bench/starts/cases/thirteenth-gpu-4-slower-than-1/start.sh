#!/usr/bin/env bash
source ~/venvs/ft/bin/activate
export CUDA_VISIBLE_DEVICES=0,1,2,3
nohup python finetune.py > train_4gpu.log 2>&1 &
