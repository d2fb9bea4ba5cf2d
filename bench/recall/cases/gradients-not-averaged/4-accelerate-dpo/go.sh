#!/bin/bash
accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 dpo_loop.py
