#!/usr/bin/env bash
# Fine-tune the harbour-master assistant on box "kraan" (4x A100 40GB).
# Usage: ./run.sh [run-name]
set -euo pipefail

NAME="${1:-harbour-$(date +%m%d-%H%M)}"
IMAGE=registry.local/ml/pytorch:2.9.1-cuda12.8
HERE="$(cd "$(dirname "$0")" && pwd)"

mkdir -p "$HERE/outputs/$NAME"

docker run --rm --gpus all \
  --name "$NAME" \
  -e HF_HOME=/cache/hf \
  -e HF_HUB_OFFLINE=1 \
  -e NCCL_DEBUG=WARN \
  -e OMP_NUM_THREADS=8 \
  -v /srv/cache:/cache \
  -v "$HERE":/work \
  -w /work \
  "$IMAGE" \
  torchrun --standalone --nproc_per_node=4 train.py \
    --output_dir "outputs/$NAME" 2>&1 | tee "outputs/$NAME/train.log"
