#!/bin/bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0
export HF_HOME=/data/hf
cd ~/LLaMA-Factory
llamafactory-cli train sft.yaml 2>&1 | tee run_r64.log
