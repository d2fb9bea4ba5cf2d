#!/bin/bash
# first run, on the workstation
# CUDA_VISIBLE_DEVICES=0 trl sft --config sft.yaml --output_dir out-1gpu

# on the rented node
accelerate launch --config_file fsdp8.yaml $(python -c 'import trl.scripts.sft as s; print(s.__file__)') --config sft.yaml
