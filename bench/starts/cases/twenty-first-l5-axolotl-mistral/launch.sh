#!/bin/bash
set -e
export HF_HUB_ENABLE_HF_TRANSFER=1
accelerate launch -m axolotl.cli.train legal.yml 2>&1 | tee train.log
