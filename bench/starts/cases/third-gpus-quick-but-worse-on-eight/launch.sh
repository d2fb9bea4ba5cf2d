#!/usr/bin/env bash
# was: CUDA_VISIBLE_DEVICES=0 python sft.py   (run-1gpu: 400 steps, 81 min)
torchrun --standalone --nproc_per_node 8 sft.py   # run-8gpu: 50 steps, 11 min
