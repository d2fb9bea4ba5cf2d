#!/bin/bash
# the whole pipeline over night
set -e
export CUDA_VISIBLE_DEVICES=0
llamafactory-cli train sft.yaml
llamafactory-cli train dpo.yaml
llamafactory-cli export export.yaml
vllm serve models/guide-qwen2.5-7b-dpo --served-model-name guide --max-model-len 4096
