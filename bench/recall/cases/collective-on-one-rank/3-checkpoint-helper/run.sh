#!/bin/bash
deepspeed --num_gpus 8 pretrain.py --tokens tokens/train.bin
