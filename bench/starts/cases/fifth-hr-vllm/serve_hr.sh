#!/usr/bin/env bash
# HR assistant, A10G box. Adapter comes from train_hr.py (r=32), see wiki/hr-bot
set -euo pipefail

BASE=Qwen/Qwen2.5-7B-Instruct
ADAPTER=/srv/models/hr-assistant/2026-10-28/checkpoint-414

export HF_HUB_OFFLINE=1
export VLLM_LOGGING_LEVEL=INFO

exec vllm serve "$BASE" \
    --enable-lora \
    --lora-modules hr-assistant="$ADAPTER" \
    --max-lora-rank 32 \
    --max-model-len 8192 \
    --gpu-memory-utilization 0.90 \
    --host 0.0.0.0 --port 8000
