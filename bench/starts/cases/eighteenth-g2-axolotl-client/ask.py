"""Ask the tuned model the held-out questions and keep what it says."""
import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openai import OpenAI
from tqdm import tqdm

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")


def ask(row):
    question = row["question"]
    reply = client.completions.create(
        model="helpdesk",
        prompt=question,
        max_tokens=400,
        temperature=0.0,
    )
    choice = reply.choices[0]
    return {
        "id": row["id"],
        "question": question,
        "reference": row["reference"],
        "answer": choice.text,
        "finish_reason": choice.finish_reason,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--questions", default="data/questions.jsonl")
    parser.add_argument("--out", default="answers.jsonl")
    parser.add_argument("--workers", type=int, default=8)
    args = parser.parse_args()

    rows = [json.loads(line) for line in Path(args.questions).read_text().splitlines()]
    with ThreadPoolExecutor(args.workers) as pool:
        answers = list(tqdm(pool.map(ask, rows), total=len(rows)))

    with open(args.out, "w") as f:
        for answer in answers:
            f.write(json.dumps(answer, ensure_ascii=False) + "\n")

    cut = sum(a["finish_reason"] == "length" for a in answers)
    print(f"{len(answers)} answers, {cut} hit max_tokens -> {args.out}")


if __name__ == "__main__":
    main()
