#!/bin/bash
# before: CUDA_VISIBLE_DEVICES=0 llamafactory-cli train qwen_lora_sft.yaml output_dir=saves/qwen7b-helpdesk-1gpu
FORCE_TORCHRUN=1 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 llamafactory-cli train qwen_lora_sft.yaml
