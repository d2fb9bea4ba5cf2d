#!/bin/bash
# usage: ./run_eval.sh runs/qwen3-4b-wp/merged 4
set -e
MODEL=$1
N=${2:-1}
OUT=out${N}
mkdir -p $OUT

for r in $(seq 0 $((N - 1))); do
  CUDA_VISIBLE_DEVICES=$r python infer.py --model $MODEL --rank $r --world $N \
      --out $OUT/part_$r.jsonl > $OUT/log_$r.txt 2>&1 &
done
wait

cat $OUT/part_*.jsonl > preds_${N}gpu.jsonl
python score.py preds_${N}gpu.jsonl
