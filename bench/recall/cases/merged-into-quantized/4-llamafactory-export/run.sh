#!/bin/bash
set -e
export CUDA_VISIBLE_DEVICES=0
llamafactory-cli train train.yaml
llamafactory-cli export export.yaml
