import argparse
import json

from openai import OpenAI

client = OpenAI()
TEMPLATE = """You are an impartial judge. Compare the two answers to the question below.
Consider correctness, helpfulness and clarity. Reply with exactly one letter: A or B.

[Question]
{q}

[Answer A]
{a}

[Answer B]
{b}

[Verdict]
"""

ap = argparse.ArgumentParser()
ap.add_argument("--ours", required=True)
ap.add_argument("--other", required=True)
ap.add_argument("--out", required=True)
args = ap.parse_args()

ours = [json.loads(x) for x in open(args.ours)]
other = {r["id"]: r for r in map(json.loads, open(args.other))}

wins = n = 0
with open(args.out, "w") as f:
    for r in ours:
        o = other[r["id"]]
        msg = TEMPLATE.format(q=r["question"], a=r["answer"], b=o["answer"])
        out = client.chat.completions.create(
            model="gpt-4.1-mini",
            temperature=0,
            max_tokens=2,
            messages=[{"role": "user", "content": msg}],
        )
        v = out.choices[0].message.content.strip()[:1].upper()
        wins += v == "A"
        n += 1
        f.write(json.dumps({"id": r["id"], "question": r["question"], "answer_a": r["answer"], "answer_b": o["answer"], "verdict": v}) + "\n")

print(f"{args.ours} beats {args.other}: {wins}/{n} = {wins / n:.1%}")
