#!/usr/bin/env bash
set -e
cd /data/lf
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export NCCL_P2P_LEVEL=NVL
export TOKENIZERS_PARALLELISM=false
FORCE_TORCHRUN=1 llamafactory-cli train llama3_full.yaml 2>&1 | tee train.log
