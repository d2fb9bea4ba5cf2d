#!/bin/bash
CKPT=${1:-/mnt/ckpt/qwen25-7b-claims-merged}
lm_eval --model vllm \
  --model_args pretrained=$CKPT,dtype=bfloat16,gpu_memory_utilization=0.85,max_model_len=8192 \
  --tasks arc_challenge,winogrande,truthfulqa_mc2 \
  --apply_chat_template \
  --batch_size auto --seed 1234 \
  --output_path results/ft
