#!/bin/bash
torchrun --standalone --nproc_per_node=8 train.py --files "manuals/*.jsonl"
