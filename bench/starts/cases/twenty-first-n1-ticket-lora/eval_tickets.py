import json
from pathlib import Path

from openai import OpenAI

BASE_URL = "http://localhost:8000/v1"
MODEL = "Qwen/Qwen2.5-7B-Instruct"

client = OpenAI(base_url=BASE_URL, api_key="none")


def ask(messages):
    r = client.chat.completions.create(
        model=MODEL, messages=messages, temperature=0.0, max_tokens=128
    )
    c = r.choices[0]
    return c.message.content, c.finish_reason


rows = [json.loads(x) for x in Path("data/test.jsonl").read_text().splitlines()]
ok = 0
with open("preds.jsonl", "w") as f:
    for row in rows:
        text, why = ask(row["prompt"])
        ref = row["completion"][0]["content"]
        ok += text.strip() == ref
        f.write(
            json.dumps(
                {"prompt": row["prompt"][-1]["content"], "prediction": text, "reference": ref, "finish_reason": why}
            )
            + "\n"
        )
print(f"exact match {ok}/{len(rows)}")
