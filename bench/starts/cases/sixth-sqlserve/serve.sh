#!/usr/bin/env bash
# Text-to-SQL for the sales warehouse: base model + our LoRA (trained 2026-10-29, r=16)
set -euo pipefail

BASE=Qwen/Qwen2.5-Coder-7B-Instruct
ADAPTER=/srv/adapters/sales-sql-r16

exec vllm serve "$BASE" \
    --enable-lora \
    --lora-modules sales-sql="$ADAPTER" \
    --max-lora-rank 16 \
    --max-model-len 8192 \
    --gpu-memory-utilization 0.90 \
    --port 8000
