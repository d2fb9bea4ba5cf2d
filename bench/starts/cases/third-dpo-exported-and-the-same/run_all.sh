#!/bin/bash
set -euo pipefail
llamafactory-cli train 1_sft.yaml
llamafactory-cli train 2_dpo.yaml
llamafactory-cli export 3_export.yaml
vllm serve models/clinic-dpo --served-model-name clinic --max-model-len 4096
