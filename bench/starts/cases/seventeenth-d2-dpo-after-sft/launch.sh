#!/usr/bin/env bash
set -e
export TOKENIZERS_PARALLELISM=false
accelerate launch --config_file zero3.yaml train_dpo.py 2>&1 | tee dpo.log
