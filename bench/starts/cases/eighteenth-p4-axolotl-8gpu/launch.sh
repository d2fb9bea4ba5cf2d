accelerate launch --multi_gpu --num_processes 8 --mixed_precision bf16 -m axolotl.cli.train config.yaml
