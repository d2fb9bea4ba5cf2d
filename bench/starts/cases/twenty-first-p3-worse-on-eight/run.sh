accelerate launch --config_file fsdp8.yaml finetune.py --batch_size 4 --epochs 3 --output out8 > run8.log 2>&1
