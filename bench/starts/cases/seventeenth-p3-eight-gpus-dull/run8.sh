#!/bin/bash
# old box (1 GPU):  llamafactory-cli train triage_lora.yaml output_dir=saves/triage-1gpu
export FORCE_TORCHRUN=1
export NPROC_PER_NODE=8
llamafactory-cli train triage_lora.yaml
