#!/bin/bash
docker run --rm --gpus '"device=0,1,2,3"' --ipc=host --ulimit memlock=-1 \
  -v /data/hf:/home/user/.cache/huggingface -v /scratch:/scratch -v $PWD:/workspace/cfg \
  axolotlai/axolotl:main-20260210-py3.11-cu128-2.8.0 \
  axolotl train /workspace/cfg/config.yml --launcher torchrun -- --nproc_per_node=4 2>&1 | tee axolotl.log
