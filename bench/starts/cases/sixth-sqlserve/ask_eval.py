"""Ask the served model all questions and count exact matches.

Start ./serve.sh first. Result of 3 Nov: 4 of 120 right, the untuned model had 4 as well.
"""
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

BASE_URL = "http://localhost:8000/v1"
MODEL = "Qwen/Qwen2.5-Coder-7B-Instruct"
SYSTEM = "You translate questions about the sales warehouse into one SQL statement."

client = OpenAI(base_url=BASE_URL, api_key="not-needed")


def normal(sql: str) -> str:
    sql = re.sub(r"```(?:sql)?|```", " ", sql)
    return re.sub(r"\s+", " ", sql).strip().rstrip(";").lower()


def ask(row: dict) -> dict:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["question"]},
        ],
        temperature=0,
        max_tokens=256,
    )
    text = answer.choices[0].message.content or ""
    return {**row, "sql": text, "hit": normal(text) == normal(row["gold_sql"])}


def main(path: str) -> None:
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(ask, rows))
    hits = sum(r["hit"] for r in done)
    print(f"{hits} of {len(done)} right")
    with open("answers.jsonl", "w", encoding="utf-8") as f:
        for r in done:
            f.write(json.dumps(r) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "questions.jsonl")
