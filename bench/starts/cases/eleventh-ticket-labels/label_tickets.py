"""Nightly: let the tuned model label all tickets of the last day."""
import argparse
import asyncio
import json
import time
from pathlib import Path

from openai import AsyncOpenAI
from tqdm.asyncio import tqdm

SYSTEM = (
    "You label support tickets. Answer with one JSON object with the keys "
    "queue, priority, product, summary. The summary has at most 60 words."
)


def read_tickets(path):
    with open(path) as f:
        for line in f:
            t = json.loads(line)
            yield t["id"], f"Subject: {t['subject']}\n\n{t['body']}"


async def label(client, sem, ticket_id, text, model):
    async with sem:
        start = time.perf_counter()
        response = await client.chat.completions.create(
            model=model,
            messages=[
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": text},
            ],
            temperature=0.0,
            max_tokens=256,
        )
        choice = response.choices[0]
        return {
            "id": ticket_id,
            "answer": choice.message.content,
            "finish_reason": choice.finish_reason,
            "completion_tokens": response.usage.completion_tokens,
            "seconds": round(time.perf_counter() - start, 2),
        }


async def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("tickets")
    ap.add_argument("--out", default="labels.jsonl")
    ap.add_argument("--url", default="http://localhost:8000/v1")
    ap.add_argument("--model", default="tickets")
    ap.add_argument("--concurrency", type=int, default=128)
    args = ap.parse_args()

    client = AsyncOpenAI(base_url=args.url, api_key="-", timeout=600, max_retries=2)
    sem = asyncio.Semaphore(args.concurrency)
    tickets = list(read_tickets(args.tickets))
    print(f"{len(tickets)} tickets, concurrency {args.concurrency}")

    start = time.perf_counter()
    tasks = [label(client, sem, i, text, args.model) for i, text in tickets]
    tokens = 0
    with Path(args.out).open("w") as out:
        for task in tqdm.as_completed(tasks):
            row = await task
            tokens += row["completion_tokens"]
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    took = time.perf_counter() - start
    print(f"{len(tickets)} labels in {took / 60:.1f} min, {tokens / took:.0f} tokens/s")


if __name__ == "__main__":
    asyncio.run(main())
