#!/usr/bin/env bash
set -e
export CUDA_VISIBLE_DEVICES=0,1,2,3
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
torchrun --nproc_per_node 4 pretrain_domain.py \
  --output_dir /mnt/nfs/runs/mistral-chem \
  --model_name mistralai/Mistral-7B-v0.3 \
  --deepspeed ds_z2.json \
  --bf16 true --gradient_checkpointing true \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 16 \
  --learning_rate 2e-5 --lr_scheduler_type cosine --warmup_ratio 0.02 --weight_decay 0.1 \
  --num_train_epochs 1 --logging_steps 10 --save_steps 250 --save_total_limit 3 \
  --report_to none 2>&1 | tee train.log
