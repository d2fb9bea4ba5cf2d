ACCELERATE_USE_FSDP=1 FSDP_CPU_RAM_EFFICIENT_LOADING=1 torchrun --nproc_per_node=4 ./train_qlora_fsdp.py --config llama_3_70b_fsdp_qlora.yaml 2>&1 | tee run.log
