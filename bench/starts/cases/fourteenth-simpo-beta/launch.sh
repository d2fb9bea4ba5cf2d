#!/bin/bash
# 8 x H100
accelerate launch --config_file fsdp2.yaml --num_processes 8 simpo.py 2>&1 | tee simpo.log
