#!/usr/bin/env bash
# put the GGUF of train.py into Ollama on the till computer
set -euo pipefail
GGUF=${1:-bistro-host/unsloth.Q4_K_M.gguf}

cat > Modelfile <<EOF
FROM ./$GGUF

TEMPLATE """[INST] {{ if .System }}<<SYS>>
{{ .System }}
<</SYS>>

{{ end }}{{ .Prompt }} [/INST] """

SYSTEM """You are the host of Bistro Quai 9."""
PARAMETER stop "[INST]"
PARAMETER stop "[/INST]"
PARAMETER temperature 0.3
PARAMETER num_ctx 2048
EOF

ollama create bistro-host -f Modelfile
ollama run bistro-host "Do you have a table for four on Friday at 19:30?"
