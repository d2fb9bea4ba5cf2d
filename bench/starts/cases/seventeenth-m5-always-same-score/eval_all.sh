#!/bin/bash
# lm-eval 0.4.9, vllm 0.10.1
source /opt/eval/bin/activate
export VLLM_WORKER_MULTIPROC_METHOD=spawn

CACHE=/scratch/lmeval/gsm8k_ifeval
for m in \
    Qwen/Qwen2.5-7B-Instruct \
    /scratch/runs/tutor-sft/merged-ep1 \
    /scratch/runs/tutor-sft/merged-ep2 \
    /scratch/runs/tutor-sft/merged-ep3
do
    name=$(basename $m)
    lm_eval --model vllm \
        --model_args pretrained=$m,dtype=bfloat16,max_model_len=8192,gpu_memory_utilization=0.85 \
        --tasks gsm8k,ifeval \
        --apply_chat_template \
        --fewshot_as_multiturn \
        --batch_size auto \
        --use_cache $CACHE \
        --output_path results/$name \
        --log_samples 2>&1 | tee logs/$name.log
done
