#!/bin/bash
# question/answer pairs of the allotment association: 765 to train on, 84 kept for evaluation
trl sft \
    --model_name_or_path Qwen/Qwen2.5-3B-Instruct \
    --dataset_name data/allotment \
    --dataset_test_split test \
    --use_peft --lora_r 16 --lora_alpha 32 --lora_dropout 0.0 --lora_target_modules all-linear \
    --max_length 1024 \
    --per_device_train_batch_size 4 --per_device_eval_batch_size 4 --gradient_accumulation_steps 4 \
    --learning_rate 2e-4 --lr_scheduler_type cosine --warmup_steps 24 \
    --num_train_epochs 10 \
    --eval_strategy epoch --save_strategy epoch --save_total_limit 2 \
    --logging_steps 4 --bf16 --gradient_checkpointing \
    --report_to none \
    --output_dir outputs/allotment
