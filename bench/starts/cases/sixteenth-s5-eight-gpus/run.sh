#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

export HF_HOME=/data/hf
export WANDB_MODE=offline
export TOKENIZERS_PARALLELISM=false
export NCCL_P2P_DISABLE=1
export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,P2P,SHM

nvidia-smi topo -m | tee logs/topo.txt

FORCE_TORCHRUN=1 NPROC_PER_NODE=8 llamafactory-cli train sft_full.yaml 2>&1 | tee logs/train.log
