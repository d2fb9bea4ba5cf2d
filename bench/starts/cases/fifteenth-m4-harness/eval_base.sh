#!/bin/bash
# baseline numbers, 2026-01 (tj)
lm_eval --model vllm \
  --model_args pretrained=Qwen/Qwen2.5-7B-Instruct,dtype=bfloat16,gpu_memory_utilization=0.85,max_model_len=8192 \
  --tasks arc_challenge,winogrande,truthfulqa_mc2 \
  --num_fewshot 25 --fewshot_as_multiturn --apply_chat_template \
  --batch_size auto --seed 1234 \
  --output_path results/base
