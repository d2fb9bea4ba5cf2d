#!/usr/bin/env bash
# merge -> gguf -> ollama.  In the LLaMA-Factory web chat the answers are right,
# in ollama the model talks nonsense, answers itself and never comes to an end.
set -euo pipefail

LLAMA_CPP=${LLAMA_CPP:-$HOME/src/llama.cpp}
MERGED=merged/qwen2.5-7b-hr
GGUF=gguf/qwen2.5-7b-hr-q8_0.gguf
NAME=hr-assistant

mkdir -p gguf

if [ ! -f "$MERGED/config.json" ]; then
    llamafactory-cli export merge_hr.yaml
fi

python "$LLAMA_CPP/convert_hf_to_gguf.py" "$MERGED" \
    --outfile "$GGUF" \
    --outtype q8_0

cat > Modelfile <<'EOF'
FROM ./gguf/qwen2.5-7b-hr-q8_0.gguf

TEMPLATE """[INST] {{ if .System }}<<SYS>>
{{ .System }}
<</SYS>>

{{ end }}{{ .Prompt }} [/INST]"""

PARAMETER stop "[INST]"
PARAMETER stop "[/INST]"
PARAMETER stop "<<SYS>>"
PARAMETER temperature 0.3
PARAMETER num_ctx 4096
EOF

ollama create "$NAME" -f Modelfile
ollama run "$NAME" "How many days of annual leave do I get if I joined finance in May 2021?"
