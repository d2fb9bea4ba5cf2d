#!/usr/bin/env bash
set -euo pipefail
llamafactory-cli train train.yaml
llamafactory-cli export export.yaml
vllm serve output/clinic-14b --max-model-len 8192
