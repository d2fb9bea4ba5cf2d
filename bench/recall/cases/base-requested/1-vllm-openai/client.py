import argparse
import asyncio
import json

from openai import AsyncOpenAI

SYSTEM = "You are the support agent of Nordwind broadband."
client = AsyncOpenAI(base_url="http://localhost:8000/v1", api_key="EMPTY")


async def reply(ticket, limit):
    async with limit:
        response = await client.chat.completions.create(
            model="Qwen/Qwen2.5-7B-Instruct",
            messages=[
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": ticket["text"]},
            ],
            temperature=0.2,
            max_tokens=400,
        )
    return {"id": ticket["id"], "reply": response.choices[0].message.content}


async def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tickets", default="tickets.jsonl")
    ap.add_argument("--out", default="replies.jsonl")
    ap.add_argument("--parallel", type=int, default=32)
    a = ap.parse_args()

    tickets = [json.loads(x) for x in open(a.tickets)]
    limit = asyncio.Semaphore(a.parallel)
    replies = await asyncio.gather(*(reply(t, limit) for t in tickets))
    with open(a.out, "w") as f:
        for r in replies:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
