#!/bin/bash
# Serves the merged fine-tune (Llama-3.2-3B, bf16) on one A10G, g5.2xlarge
set -e

MODEL_DIR=/opt/models/claims-llama32-3b-merged
PORT=${PORT:-8080}
LOG=/var/log/vllm/claims.log

if [ ! -f "$MODEL_DIR/config.json" ]; then
    echo "no model in $MODEL_DIR" >&2
    exit 1
fi

# wait until the GPU is there after a reboot
for i in $(seq 1 30); do
    nvidia-smi > /dev/null 2>&1 && break
    sleep 2
done

export VLLM_WORKER_MULTIPROC_METHOD=spawn
export CUDA_VISIBLE_DEVICES=0

python -m vllm.entrypoints.openai.api_server \
    --model "$MODEL_DIR" \
    --served-model-name claims \
    --dtype bfloat16 \
    --max-model-len 4096 \
    --max-num-seqs 64 \
    --gpu-memory-utilization 0.88 \
    --enforce-eager \
    --port "$PORT" >> "$LOG" 2>&1
