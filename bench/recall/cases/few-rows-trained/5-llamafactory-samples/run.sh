#!/bin/bash
set -e
# full run, 3 epochs, about 9 hours on one A100
llamafactory-cli train qwen25_lora_full.yaml 2>&1 | tee clinic-full.log
