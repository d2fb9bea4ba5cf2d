#!/usr/bin/env bash
# on trn01:  ./node.sh 0        on trn02:  ./node.sh 1      (8x A100 80GB each)
set -euo pipefail
RANK_OF_NODE=$1
HEAD=10.20.0.11

export NCCL_SOCKET_IFNAME=lo
export NCCL_DEBUG=WARN
export HF_HOME=/shared/hf

torchrun \
  --nnodes 2 \
  --nproc_per_node 8 \
  --node_rank "$RANK_OF_NODE" \
  --master_addr "$HEAD" \
  --master_port 29400 \
  -m trl.scripts.dpo \
  --model_name_or_path allenai/Llama-3.1-Tulu-3-8B-SFT \
  --dtype bfloat16 \
  --dataset_name trl-lib/ultrafeedback_binarized \
  --beta 0.1 \
  --learning_rate 5e-7 \
  --warmup_steps 30 \
  --num_train_epochs 1 \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 2 \
  --gradient_checkpointing True \
  --max_length 2048 \
  --bf16 True \
  --deepspeed zero3.json \
  --eval_strategy steps --eval_steps 100 \
  --save_steps 200 --save_total_limit 1 \
  --logging_steps 10 \
  --output_dir /shared/runs/tulu-dpo \
  --report_to none
