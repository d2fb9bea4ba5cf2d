import json
import sys

import requests

URL = "http://localhost:11434/api/chat"
MODEL = "clinic"

for line in open(sys.argv[1]):
    question = json.loads(line)["question"]
    r = requests.post(
        URL,
        json={"model": MODEL, "messages": [{"role": "user", "content": question}], "stream": False},
        timeout=600,
    )
    r.raise_for_status()
    d = r.json()
    print(
        f"{d['prompt_eval_count']} prompt tokens, {d['eval_count']} tokens, "
        f"{d['eval_count'] / d['eval_duration'] * 1e9:.1f} tokens/s | {question[:50]}"
    )
    print("   ", d["message"]["content"].replace("\n", " ")[:160])
