import asyncio
import json
import sys
from pathlib import Path

from openai import AsyncOpenAI

client = AsyncOpenAI(base_url="http://localhost:8000/v1", api_key="none")


async def one(row, model, gate):
    async with gate:
        answer = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": row["question"]}],
            temperature=0.0,
            max_tokens=200,
        )
    return {**row, "prediction": answer.choices[0].message.content}


async def everything(rows, model, width=64):
    gate = asyncio.Semaphore(width)
    return await asyncio.gather(*(one(r, model, gate) for r in rows))


def main(source, target, model="support-lora"):
    rows = [json.loads(x) for x in Path(source).read_text().splitlines() if x]
    done = asyncio.run(everything(rows, model))
    with open(target, "w") as f:
        for row in done:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{len(done)} rows answered")


if __name__ == "__main__":
    main(*sys.argv[1:])
