import argparse
import asyncio
import json
from pathlib import Path

from openai import AsyncOpenAI
from tqdm import tqdm

client = AsyncOpenAI(base_url="http://localhost:8000/v1", api_key="none", timeout=600)
gate = asyncio.Semaphore(64)


async def ask(row):
    async with gate:
        r = await client.chat.completions.create(
            model="triage",
            messages=row["messages"][:-1],
            temperature=0.0,
            max_tokens=400,
        )
    c = r.choices[0]
    return {
        "id": row["id"],
        "prediction": c.message.content,
        "reference": row["messages"][-1]["content"],
        "finish_reason": c.finish_reason,
    }


async def main():
    p = argparse.ArgumentParser()
    p.add_argument("rows", type=Path)
    p.add_argument("out", type=Path)
    a = p.parse_args()
    rows = [json.loads(line) for line in a.rows.open()]
    with a.out.open("w") as f:
        for row in tqdm(rows):
            f.write(json.dumps(await ask(row)) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
