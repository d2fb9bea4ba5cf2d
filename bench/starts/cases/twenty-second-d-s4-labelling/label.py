import asyncio
import json
import sys
import time

from openai import AsyncOpenAI

client = AsyncOpenAI(base_url="http://localhost:8000/v1", api_key="none", timeout=600)
gate = asyncio.Semaphore(64)

INSTRUCTION = (
    "Read the customer's message. Return JSON with the keys product, problem, urgency (1 to 5), "
    "sentiment, and summary (three to five sentences)."
)


async def label(row: dict) -> dict:
    async with gate:
        r = await client.chat.completions.create(
            model="qwen14b",
            messages=[
                {"role": "system", "content": INSTRUCTION},
                {"role": "user", "content": row["text"]},
            ],
            temperature=0,
            max_tokens=400,
            response_format={"type": "json_object"},
        )
    return {"id": row["id"], "label": r.choices[0].message.content, "tokens": r.usage.completion_tokens}


async def main(path: str, out: str) -> None:
    with open(path) as f:
        rows = [json.loads(line) for line in f]
    started, tokens = time.monotonic(), 0
    with open(out, "w") as sink:
        for n, row in enumerate(rows, 1):
            result = await label(row)
            tokens += result["tokens"]
            sink.write(json.dumps(result) + "\n")
            if n % 50 == 0:
                spent = time.monotonic() - started
                left = (len(rows) - n) * spent / n
                print(f"{n}/{len(rows)}  {tokens / spent:.1f} tok/s  left {left / 3600:.1f} h", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
