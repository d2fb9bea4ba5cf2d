#!/usr/bin/env bash
set -euo pipefail
cp dataset_info.json letters_pairs.json data/
llamafactory-cli train dpo.yaml
