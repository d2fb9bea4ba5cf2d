"""Run the twenty smoke questions against the helpdesk model and print the speed."""
import json
import sys
import time

import requests

URL = "http://localhost:11434/api/chat"
MODEL = "helpdesk-8b"

questions = [line.strip() for line in open("questions.txt") if line.strip()]
out = open("answers.jsonl", "w")
for q in questions:
    t0 = time.time()
    r = requests.post(
        URL,
        json={"model": MODEL, "messages": [{"role": "user", "content": q}], "stream": False, "keep_alive": "30m"},
        timeout=600,
    )
    r.raise_for_status()
    d = r.json()
    tps = d["eval_count"] / (d["eval_duration"] / 1e9)
    print(f"{time.time() - t0:6.1f}s  prompt {d['prompt_eval_count']:4d} tok  answer {d['eval_count']:4d} tok  {tps:5.2f} tok/s", flush=True)
    out.write(json.dumps({"prompt": q, "prediction": d["message"]["content"], "finish_reason": d["done_reason"]}) + "\n")
sys.exit(0)
