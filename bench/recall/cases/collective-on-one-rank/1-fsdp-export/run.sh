#!/bin/bash
torchrun --standalone --nproc_per_node=8 train_fsdp.py
