#!/usr/bin/env bash
set -euo pipefail
cat > tutor.yaml <<'YAML'
model: Qwen/Qwen2.5-3B-Instruct
data: data/tutor_tokenized
out: runs/tutor
seed: 4
lr: 1.0e-4
epochs: 2
batch_size: 8
lora: {r: 16, lora_alpha: 32, target_modules: all-linear}
YAML
torchrun --standalone --nproc_per_node=4 main.py tutor.yaml
