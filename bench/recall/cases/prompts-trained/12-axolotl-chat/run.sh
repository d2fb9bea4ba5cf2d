#!/usr/bin/env bash
set -euo pipefail
axolotl preprocess chat.yml --debug
axolotl train chat.yml
axolotl merge-lora chat.yml --lora-model-dir ./outputs/desk
