"""Summarise last month's claims with the tuned model (about 40k documents)."""
import argparse
import asyncio
import json
import time

from openai import AsyncOpenAI

SYSTEM = "You are a claims analyst. Summarise the claim in five bullet points and name the open questions."

client = AsyncOpenAI(base_url="http://llm:8000/v1", api_key="none", timeout=1800, max_retries=2)


async def summarise(row, gate):
    async with gate:
        start = time.perf_counter()
        reply = await client.chat.completions.create(
            model="claims-8b",
            messages=[
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": row["text"]},
            ],
            temperature=0.0,
            max_tokens=400,
        )
        return {
            "id": row["id"],
            "summary": reply.choices[0].message.content,
            "finish": reply.choices[0].finish_reason,
            "seconds": round(time.perf_counter() - start, 2),
        }


async def main(path, out, parallel):
    rows = [json.loads(line) for line in open(path)]
    gate = asyncio.Semaphore(parallel)
    done = 0
    with open(out, "w") as file:
        for task in asyncio.as_completed([summarise(row, gate) for row in rows]):
            file.write(json.dumps(await task) + "\n")
            done += 1
            if done % 100 == 0:
                print(f"{done}/{len(rows)}", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("path")
    p.add_argument("--out", default="summaries.jsonl")
    p.add_argument("--parallel", type=int, default=64)
    a = p.parse_args()
    asyncio.run(main(a.path, a.out, a.parallel))
