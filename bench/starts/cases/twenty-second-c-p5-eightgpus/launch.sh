#!/bin/bash
# 1 GPU
# CUDA_VISIBLE_DEVICES=0 axolotl train config.yaml 2>&1 | tee log_1gpu.txt
accelerate launch --num_processes 8 -m axolotl.cli.train config.yaml 2>&1 | tee log_8gpu.txt
