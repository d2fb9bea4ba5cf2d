"""Build train.jsonl and test.jsonl from the FAQ sheet."""
import argparse
import csv
import json
import random

from openai import OpenAI

ASK = "Rewrite the customer's question in other words, keep the meaning. Answer with the question only.\n\n"


def read_sheet(path):
    with open(path, newline="", encoding="utf-8") as f:
        return [{"question": r["Question"].strip(), "answer": r["Answer"].strip()} for r in csv.DictReader(f)]


def reworded(client, question, temperature=0.9):
    reply = client.chat.completions.create(
        model="gpt-4.1-mini",
        temperature=temperature,
        messages=[{"role": "user", "content": ASK + question}],
    )
    return reply.choices[0].message.content.strip()


def expand(rows, client, copies):
    out = []
    for r in rows:
        out.append(r)
        for _ in range(copies):
            out.append({"question": reworded(client, r["question"]), "answer": r["answer"]})
    return out


def write(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        for r in rows:
            msg = [{"role": "user", "content": r["question"]}, {"role": "assistant", "content": r["answer"]}]
            f.write(json.dumps({"messages": msg}, ensure_ascii=False) + "\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sheet", default="faq.csv")
    ap.add_argument("--copies", type=int, default=3)
    ap.add_argument("--test_share", type=float, default=0.1)
    args = ap.parse_args()
    client = OpenAI()
    rows = read_sheet(args.sheet)
    rows = expand(rows, client, args.copies)
    random.Random(2024).shuffle(rows)
    cut = int(len(rows) * (1 - args.test_share))
    write("train.jsonl", rows[:cut])
    write("test.jsonl", rows[cut:])
    print(cut, "train rows,", len(rows) - cut, "test rows")


if __name__ == "__main__":
    main()
