#!/usr/bin/env bash
torchrun --standalone --nproc_per_node=8 train_lora_ddp.py
