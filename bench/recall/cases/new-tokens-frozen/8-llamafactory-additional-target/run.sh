#!/bin/bash
set -e
llamafactory-cli train sft_lora.yaml
