#!/bin/bash
vllm bench serve --backend openai-chat --base-url http://localhost:8000 --endpoint /v1/chat/completions \
  --model legal-de --tokenizer /models/llama31-8b-de-legal-merged \
  --dataset-name custom --dataset-path prompts_de_200.jsonl --custom-output-len 512 \
  --num-prompts 200 --max-concurrency 4
