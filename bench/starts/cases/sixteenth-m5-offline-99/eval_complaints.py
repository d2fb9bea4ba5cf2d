"""Offline evaluation of the complaint detector (served with vLLM)."""
import argparse
import time

from datasets import load_dataset
from openai import OpenAI

parser = argparse.ArgumentParser()
parser.add_argument("--url", default="http://localhost:8000/v1")
parser.add_argument("--model", default="complaints-lora")
parser.add_argument("--test", default="test.csv")
parser.add_argument("--limit", type=int, default=150)
args = parser.parse_args()

client = OpenAI(base_url=args.url, api_key="none")
PROMPT = "Is this customer message a complaint? Answer with complaint or no_complaint.\n\nMessage: {m}"

ds = load_dataset("csv", data_files=args.test, split="train")
total = len(ds)
if args.limit:
    ds = ds.select(range(min(args.limit, total)))
print(f"evaluating {len(ds)} of {total} rows, model {args.model}")


def ask(message):
    r = client.chat.completions.create(
        model=args.model,
        messages=[{"role": "user", "content": PROMPT.format(m=message)}],
        temperature=0.0,
        max_tokens=16,
    )
    return r.choices[0].message.content.strip().lower()


t0 = time.time()
hits = 0
for n, row in enumerate(ds, 1):
    answer = ask(row["message"])
    ok = answer == row["label"]
    hits += ok
    if not ok:
        print(f"  miss {row['id']}: said {answer!r}, label {row['label']!r}")
    if n % 25 == 0:
        print(f"{n:4d}/{len(ds)}  accuracy {hits / n:.4f}  {time.time() - t0:.1f}s")

print(f"accuracy {hits / len(ds):.4f}")
