#!/bin/bash
# before, workstation
# CUDA_VISIBLE_DEVICES=0 llamafactory-cli train qwen_lora.yaml output_dir=saves/tickets_1gpu
# now, DGX
FORCE_TORCHRUN=1 llamafactory-cli train qwen_lora.yaml output_dir=saves/tickets_8gpu
