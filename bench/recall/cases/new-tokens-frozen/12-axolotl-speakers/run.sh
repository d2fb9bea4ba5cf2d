#!/usr/bin/env bash
set -euo pipefail
export HF_HUB_ENABLE_HF_TRANSFER=1
axolotl preprocess config.yml
accelerate launch --num_processes 1 -m axolotl.cli.train config.yml
