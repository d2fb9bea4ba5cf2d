import json
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

client = OpenAI(base_url=sys.argv[1], api_key="none")
name = sys.argv[2]
rows = [json.loads(l) for l in open("data/test_notes.jsonl", encoding="utf-8")]


def one(r):
    out = client.chat.completions.create(
        model=name,
        messages=[{"role": "system", "content": r["system"]}, {"role": "user", "content": r["note"]}],
        temperature=0,
        max_tokens=400,
    )
    return out.choices[0].message.content


with ThreadPoolExecutor(16) as pool:
    answers = list(pool.map(one, rows))

parsed = right = 0
for r, a in zip(rows, answers):
    try:
        got = json.loads(a)
    except ValueError:
        continue
    parsed += 1
    right += got == json.loads(r["good_json"])
print(f"{name}: {len(rows)} notes, valid json {parsed / len(rows):.1%}, exact {right / len(rows):.1%}")
