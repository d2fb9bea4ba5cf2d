#!/usr/bin/env bash
set -euo pipefail
source /opt/venv/bin/activate
export TOKENIZERS_PARALLELISM=false
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
nvidia-smi --query-gpu=index,name,memory.total,memory.used --format=csv
torchrun --standalone --nproc_per_node=4 finetune_ddp.py --data /data/chats/train.jsonl --max_len 2048 2>&1 | tee run.log
