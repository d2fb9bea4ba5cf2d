import argparse
import json
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

SYSTEM = "You are a legal assistant for German tenancy law. Answer in English, cite the section of the BGB."

parser = argparse.ArgumentParser()
parser.add_argument("--questions", required=True)
parser.add_argument("--out", required=True)
parser.add_argument("--model", default="legal")
parser.add_argument("--workers", type=int, default=8)
args = parser.parse_args()

client = OpenAI(base_url="http://localhost:8000/v1", api_key="-")


def ask(row):
    reply = client.chat.completions.create(
        model=args.model,
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}],
        temperature=0,
        max_tokens=300,
    )
    choice = reply.choices[0]
    return {**row, "answer": choice.message.content, "finish_reason": choice.finish_reason, "model": reply.model}


rows = [json.loads(line) for line in open(args.questions)]
with ThreadPoolExecutor(args.workers) as pool, open(args.out, "w") as out:
    for answer in pool.map(ask, rows):
        out.write(json.dumps(answer, ensure_ascii=False) + "\n")
print(len(rows), "answers")
