#!/usr/bin/env bash
set -e
export CUDA_VISIBLE_DEVICES=0

llamafactory-cli train configs/sft.yaml 2>&1 | tee sft.log
python eval_receipts.py saves/llama31-8b/lora/sft   # 94.1 % valid

# second stage: preferences from the accountants
llamafactory-cli train configs/dpo.yaml 2>&1 | tee dpo.log
llamafactory-cli export configs/merge.yaml
python eval_receipts.py models/receipts-8b          # 11.8 % valid ???
