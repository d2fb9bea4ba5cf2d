set -e
llamafactory-cli train 1_sft.yaml
llamafactory-cli train 2_dpo.yaml
llamafactory-cli export 3_merge.yaml
