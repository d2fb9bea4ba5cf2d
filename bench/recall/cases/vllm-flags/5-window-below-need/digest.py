import asyncio
import pathlib
import sys

from openai import AsyncOpenAI

client = AsyncOpenAI(base_url="http://127.0.0.1:8000/v1", api_key="EMPTY")
gate = asyncio.Semaphore(64)

TASK = "Summarise the following minutes in at most 500 words. Keep names, dates and sums."


async def digest(path):
    text = path.read_text()[:20000]
    async with gate:
        res = await client.chat.completions.create(
            model="digest",
            messages=[{"role": "system", "content": TASK}, {"role": "user", "content": text}],
            temperature=0.2,
            max_tokens=800,
        )
    out = path.with_suffix(".summary.txt")
    out.write_text(res.choices[0].message.content)
    return out


async def main(folder):
    files = sorted(pathlib.Path(folder).glob("*.txt"))
    files = [f for f in files if not f.name.endswith(".summary.txt")]
    done = await asyncio.gather(*(digest(f) for f in files))
    print(len(done), "minutes summarised")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
