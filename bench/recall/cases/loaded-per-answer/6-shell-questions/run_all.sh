#!/usr/bin/env bash
set -euo pipefail

ADAPTER=${1:-out/legal-lora}
QUESTIONS=${2:-data/questions.txt}
OUT=${3:-answers.tsv}

source .venv/bin/activate
export CUDA_VISIBLE_DEVICES=0 TOKENIZERS_PARALLELISM=false

: > "$OUT"
while IFS= read -r question; do
  [ -z "$question" ] && continue
  answer=$(python ask.py --adapter "$ADAPTER" --question "$question" < /dev/null)
  printf '%s\t%s\n' "$question" "$answer" >> "$OUT"
done < "$QUESTIONS"

wc -l "$OUT"
