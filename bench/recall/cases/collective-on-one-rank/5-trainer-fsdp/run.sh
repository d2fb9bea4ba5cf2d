#!/bin/bash
torchrun --standalone --nproc_per_node=8 sft.py sft.yaml
