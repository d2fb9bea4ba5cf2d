#!/usr/bin/env bash
set -e
vllm serve Qwen/Qwen2.5-7B-Instruct \
  --enable-lora --max-lora-rank 32 \
  --lora-modules triage=/models/triage-lora \
  --max-model-len 8192 \
  --gpu-memory-utilization 0.92 \
  --max-num-seqs 256 \
  --port 8000
