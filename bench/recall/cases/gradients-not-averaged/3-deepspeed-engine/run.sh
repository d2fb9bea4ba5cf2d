#!/bin/bash
deepspeed --num_gpus 8 run_ds.py --deepspeed --deepspeed_config ds.json
