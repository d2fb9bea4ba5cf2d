#!/bin/bash
set -euo pipefail
lm_eval --model hf \
  --model_args pretrained=/data/runs/qwen-sft/merged,dtype=bfloat16 \
  --tasks mmlu,arc_challenge,winogrande \
  --apply_chat_template \
  --batch_size 16 \
  --output_path results/sft
