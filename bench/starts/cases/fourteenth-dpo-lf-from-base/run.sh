#!/usr/bin/env bash
set -euo pipefail
llamafactory-cli train sft.yaml 2>&1 | tee logs_sft.txt
llamafactory-cli train dpo.yaml 2>&1 | tee logs_dpo.txt
llamafactory-cli export export.yaml
