#!/usr/bin/env bash
# vLLM on gpu-node-03, restarted by systemd (tickets-llm.service)
set -euo pipefail
source /opt/venvs/vllm/bin/activate

export HF_HOME=/data/hf
export VLLM_LOGGING_LEVEL=INFO

exec vllm serve Qwen/Qwen2.5-14B-Instruct \
    --host 0.0.0.0 --port 8000 \
    --dtype bfloat16 \
    --max-model-len 8192 \
    --gpu-memory-utilization 0.90 \
    --enable-lora \
    --max-lora-rank 32 \
    --lora-modules tickets=/data/adapters/tickets-qwen14b-r32/checkpoint-640
