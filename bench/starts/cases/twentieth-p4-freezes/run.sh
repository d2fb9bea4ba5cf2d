#!/usr/bin/env bash
export TORCH_NCCL_TRACE_BUFFER_SIZE=2000
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
torchrun --standalone --nproc_per_node=8 train_ddp.py 2>&1 | tee train.log
