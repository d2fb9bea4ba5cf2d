#!/bin/bash
deepspeed --num_gpus 8 train_ds.py --deepspeed --deepspeed_config ds_config.json --data chat.jsonl
