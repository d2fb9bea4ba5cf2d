#!/bin/bash
# tuned Qwen2.5-3B for the catalogue team. Restarted by systemd (catalog-llm.service)
export CUDA_VISIBLE_DEVICES=0
export VLLM_USE_V1=1

MODEL=/opt/models/catalog-qwen2.5-3b-merged
PORT=${PORT:-8010}

# --enforce-eager: was OOM while loading in spring, do not remove without asking Pavel
vllm serve "$MODEL" \
  --served-model-name catalog \
  --dtype bfloat16 \
  --max-model-len 4096 \
  --max-num-seqs 64 \
  --gpu-memory-utilization 0.92 \
  --enforce-eager \
  --port "$PORT" 2>&1 | tee -a /var/log/catalog-llm/vllm.log
