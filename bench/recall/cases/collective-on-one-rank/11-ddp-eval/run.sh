#!/usr/bin/env bash
torchrun --standalone --nproc_per_node=4 train_ddp.py
