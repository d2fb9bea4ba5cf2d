#!/usr/bin/env bash
set -euo pipefail
nvidia-smi --query-gpu=name,memory.free --format=csv
CUDA_VISIBLE_DEVICES=0 python train.py --data data/faq.jsonl --out runs/faq --epochs 3
