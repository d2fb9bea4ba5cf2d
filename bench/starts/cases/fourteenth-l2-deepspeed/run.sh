#!/bin/bash
set -e
export NCCL_DEBUG=WARN
export TOKENIZERS_PARALLELISM=false
deepspeed --num_gpus 8 sft_ds.py \
    --model_path meta-llama/Llama-3.1-8B \
    --train_file data/dolly_mix.jsonl \
    --out ckpt/llama31-8b-dolly \
    --epochs 2 \
    --deepspeed_config ds_config.json 2>&1 | tee train.log
