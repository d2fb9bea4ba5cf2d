#!/usr/bin/env bash
set -euo pipefail
# trl 0.23.1, transformers 4.56.2, deepspeed 0.17.5, 8 x H100
accelerate launch --config_file zero3.yaml --num_processes 8 simpo.py 2>&1 | tee simpo.log
