#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3
export TOKENIZERS_PARALLELISM=false
nohup python finetune.py --model Qwen/Qwen2.5-3B --bs 4 > nohup.out 2>&1 &
