"""Distil R1 traces for our word problems (vLLM server with DeepSeek-R1-Distill-Qwen-32B)."""
import asyncio
import json
import sys

from openai import AsyncOpenAI

client = AsyncOpenAI(base_url="http://gpu07:8000/v1", api_key="x", timeout=600)
TEACHER = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"
SUFFIX = "\nPlease reason step by step, and put your final answer within \\boxed{}."
gate = asyncio.Semaphore(64)


async def trace(problem):
    async with gate:
        reply = await client.chat.completions.create(
            model=TEACHER,
            messages=[{"role": "user", "content": problem["question"] + SUFFIX}],
            temperature=0.6,
            top_p=0.95,
            max_tokens=768,
        )
    text = reply.choices[0].message.content
    if not text.startswith("<think>"):
        text = "<think>\n" + text
    return {
        "conversations": [
            {"from": "human", "value": problem["question"] + SUFFIX},
            {"from": "gpt", "value": text},
        ]
    }


async def main(path_in, path_out):
    problems = [json.loads(line) for line in open(path_in)]
    rows = await asyncio.gather(*(trace(p) for p in problems))
    with open(path_out, "w") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(len(rows), "traces")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
