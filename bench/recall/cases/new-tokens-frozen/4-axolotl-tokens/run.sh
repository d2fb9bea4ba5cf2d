#!/bin/bash
set -e
axolotl preprocess lora.yml
axolotl train lora.yml
axolotl merge-lora lora.yml --lora-model-dir=./outputs/letters
