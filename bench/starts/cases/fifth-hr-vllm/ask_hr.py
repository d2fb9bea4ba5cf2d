"""Ask the HR assistant the questions of the acceptance list and write the answers for the review."""
import argparse
import csv
import json
from pathlib import Path

from openai import OpenAI

SYSTEM = (
    "You are the HR assistant of Halden Logistics. Answer in at most three sentences, cite the paragraph of the "
    "staff handbook in brackets, and say 'Please ask your HR partner' when the handbook is silent."
)


def read_questions(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8") as f:
        return [row["question"].strip() for row in csv.DictReader(f) if row["question"].strip()]


def ask(client: OpenAI, question: str) -> dict:
    reply = client.chat.completions.create(
        model="Qwen/Qwen2.5-7B-Instruct",
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": question},
        ],
        temperature=0.0,
        max_tokens=400,
    )
    choice = reply.choices[0]
    return {
        "question": question,
        "answer": choice.message.content,
        "finish_reason": choice.finish_reason,
        "tokens": reply.usage.completion_tokens,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--questions", type=Path, default=Path("acceptance.csv"))
    parser.add_argument("--out", type=Path, default=Path("answers.jsonl"))
    parser.add_argument("--url", default="http://gpu-07.halden.local:8000/v1")
    args = parser.parse_args()

    client = OpenAI(base_url=args.url, api_key="EMPTY", timeout=60)
    with args.out.open("w", encoding="utf-8") as f:
        for question in read_questions(args.questions):
            f.write(json.dumps(ask(client, question), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
