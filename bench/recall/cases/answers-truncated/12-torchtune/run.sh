#!/usr/bin/env bash
set -euo pipefail
tune validate lora.yaml
tune run lora_finetune_single_device --config lora.yaml
