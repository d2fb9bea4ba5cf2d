#!/bin/bash
torchrun --standalone --nproc_per_node=8 train_ddp.py --batch_size 8 --out out/stories
