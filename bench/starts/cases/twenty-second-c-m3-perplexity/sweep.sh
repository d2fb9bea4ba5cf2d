#!/usr/bin/env bash
for b in 1 4 8 16 32; do
  python eval_ppl.py out/qwen2.5-1.5b-medreports/checkpoint-1200 heldout.jsonl --batch-size $b
done | tee sweep.txt
