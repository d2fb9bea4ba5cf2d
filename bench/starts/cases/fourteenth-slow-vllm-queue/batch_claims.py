"""Summarise the claims of the night through our fine-tune."""
import asyncio
import json
import sys
import time

from openai import AsyncOpenAI

client = AsyncOpenAI(base_url="http://llm-host:8000/v1", api_key="none", timeout=3600, max_retries=0)
gate = asyncio.Semaphore(64)

SYSTEM = "You summarise insurance claims in five bullet points for the clerk."


async def one(row):
    async with gate:
        reply = await client.chat.completions.create(
            model="claims",
            messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["text"]}],
            max_tokens=512,
            temperature=0.0,
        )
    choice = reply.choices[0]
    return {"id": row["id"], "summary": choice.message.content, "finish": choice.finish_reason}


async def main(src, dst):
    rows = [json.loads(line) for line in open(src)]
    start = time.time()
    done = 0
    with open(dst, "w") as out:
        for task in asyncio.as_completed([one(r) for r in rows]):
            out.write(json.dumps(await task, ensure_ascii=False) + "\n")
            done += 1
            if done % 50 == 0:
                print(f"{done}/{len(rows)}  {done / (time.time() - start):.2f} claims/s", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
