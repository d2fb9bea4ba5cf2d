#!/bin/bash
# 4 x A6000 in the box under the desk. 1 GPU: 5 h 50 min. 4 GPUs: 6 h 05 min (?!)
# nvidia-smi: the load jumps from card to card, never more than one at 90 %
source ~/venvs/llm/bin/activate
export CUDA_VISIBLE_DEVICES=0,1,2,3
export TOKENIZERS_PARALLELISM=false

mkdir -p logs
python finetune.py \
    --data data/letters.jsonl \
    --out out/letters-8b \
    --epochs 2 2>&1 | tee logs/letters-8b.log
