import asyncio
import json
import os
import random

from openai import AsyncOpenAI

client = AsyncOpenAI(base_url=os.environ["TEACHER_URL"], api_key=os.environ["TEACHER_KEY"])
TEACHER = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"
sem = asyncio.Semaphore(32)


async def one(problem):
    async with sem:
        r = await client.chat.completions.create(
            model=TEACHER,
            messages=[{"role": "user", "content": problem + "\nGive the final answer in \\boxed{}."}],
            temperature=0.6,
            top_p=0.95,
            max_tokens=512,
        )
    text = r.choices[0].message.content
    if not text.startswith("<think>"):
        text = "<think>\n" + text
    return {
        "messages": [
            {"role": "user", "content": problem},
            {"role": "assistant", "content": text},
        ]
    }


async def main():
    problems = [json.loads(line)["problem"] for line in open("problems.jsonl")]
    random.Random(0).shuffle(problems)
    rows = await asyncio.gather(*(one(p) for p in problems))
    with open("traces.jsonl", "w") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(len(rows), "traces")


asyncio.run(main())
