#!/usr/bin/env bash
# nightly helpdesk model: train -> merge -> gguf -> ollama
set -euo pipefail
cd "$(dirname "$0")"
source .venv/bin/activate

NAME=helpdesk
MODEL_DIR=/srv/models/Qwen2.5-7B-Instruct
RUN_DIR=runs/$NAME
MERGED_DIR=merged/$NAME
LLAMA=$HOME/src/llama.cpp

mkdir -p runs merged gguf logs

CUDA_VISIBLE_DEVICES=0 python train.py --model "$MODEL_DIR" --out "$RUN_DIR" 2>&1 | tee logs/train.log

python merge.py --base "$MODEL_DIR" --adapter "$RUN_DIR" --out "$MERGED_DIR"

python "$LLAMA/convert_hf_to_gguf.py" "$MODEL_DIR" \
    --outfile gguf/$NAME-f16.gguf --outtype f16
"$LLAMA/build/bin/llama-quantize" gguf/$NAME-f16.gguf gguf/$NAME-Q4_K_M.gguf Q4_K_M
rm -f gguf/$NAME-f16.gguf

ollama create $NAME -f Modelfile
ollama run $NAME "the badge printer shows error B612 when I open it"
