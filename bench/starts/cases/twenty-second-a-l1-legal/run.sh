#!/bin/bash
export CUDA_VISIBLE_DEVICES=0
llamafactory-cli train train_full.yaml 2>&1 | tee train.log
