"""8 users at once against the FAQ bot, prints tokens/s per user."""
import asyncio
import json
import statistics
import time

from openai import AsyncOpenAI

client = AsyncOpenAI(base_url="http://localhost:8000/v1", api_key="x")
SYSTEM = "You are the help desk of Nordbahn. Answer briefly and politely."
QUESTIONS = [json.loads(line)["q"] for line in open("questions.jsonl")]


async def ask(question, sem):
    async with sem:
        start = time.perf_counter()
        first, text, usage = None, "", None
        stream = await client.chat.completions.create(
            model="faq",
            messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
            max_tokens=400,
            temperature=0.2,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                first = first or time.perf_counter()
                text += chunk.choices[0].delta.content
            usage = chunk.usage or usage
        end = time.perf_counter()
        return {
            "ttft": round(first - start, 3),
            "tokens": usage.completion_tokens,
            "tps": round(usage.completion_tokens / (end - first), 1),
        }


async def main():
    sem = asyncio.Semaphore(8)
    results = await asyncio.gather(*(ask(q, sem) for q in QUESTIONS))
    with open("loadtest.jsonl", "w") as f:
        for r in results:
            f.write(json.dumps(r) + "\n")
    print("median ttft", statistics.median(r["ttft"] for r in results))
    print("median tokens/s per user", statistics.median(r["tps"] for r in results))


asyncio.run(main())
