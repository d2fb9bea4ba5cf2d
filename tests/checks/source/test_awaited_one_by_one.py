"""Coroutines that a loop awaits row by row, and those that run beside one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import codes

HEAD = """
import asyncio, json
import aiohttp, httpx
from openai import AsyncOpenAI
from tqdm import tqdm
client = AsyncOpenAI(base_url="http://localhost:8000/v1", api_key="none")
gate = asyncio.Semaphore(64)
rows = [json.loads(line) for line in open("test.jsonl")]
"""
ASK = (
    HEAD
    + """
async def ask(row):
    async with gate:
        r = await client.chat.completions.create(model="m", messages=row["messages"][:-1])
    return r.choices[0].message.content
"""
)
ONE_BY_ONE = {
    "nested in a call": ASK
    + """
async def main():
    with open("out.jsonl", "w") as f:
        for row in tqdm(rows):
            f.write(json.dumps(await ask(row)))
asyncio.run(main())
""",
    "comprehension": ASK
    + """
async def main():
    return [await ask(row) for row in rows]
asyncio.run(main())
""",
    "through a retry": ASK
    + """
async def patient(row):
    for attempt in range(3):
        try:
            return await asyncio.wait_for(ask(row), 60)
        except asyncio.TimeoutError:
            pass
async def main():
    for row in rows:
        print(await patient(row))
asyncio.get_event_loop().run_until_complete(main())
""",
    "a task that is awaited at once": ASK
    + """
async def main():
    for row in rows:
        task = asyncio.create_task(ask(row))
        print(await task)
asyncio.run(main())
""",
    "asyncio.run for each row": ASK
    + """
answers = [asyncio.run(ask(row)) for row in rows]
""",
    "httpx": HEAD
    + """
async def main():
    async with httpx.AsyncClient(timeout=300) as http:
        for row in rows:
            r = await http.post("http://h/v1/chat/completions", json={"messages": row["messages"]})
            print(r.json())
asyncio.run(main())
""",
    "aiohttp": HEAD
    + """
async def main():
    async with aiohttp.ClientSession() as session:
        for row in rows:
            async with session.post("http://h/v1/chat/completions", json={"messages": row["messages"]}) as r:
                print(await r.json())
asyncio.run(main())
""",
}
TOGETHER = {
    "gather": ASK
    + "async def main():\n    return await asyncio.gather(*(ask(row) for row in rows))\n",
    "as completed": ASK
    + """
async def main():
    for done in asyncio.as_completed([ask(row) for row in rows]):
        print(await done)
asyncio.run(main())
""",
    "tasks": ASK
    + """
async def main():
    tasks = [asyncio.create_task(ask(row)) for row in rows]
    for task in tasks:
        print(await task)
asyncio.run(main())
""",
    "a group": ASK
    + """
async def main():
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(row)) for row in rows]
asyncio.run(main())
""",
    "parts beside one another": ASK
    + """
async def part(own):
    return [await ask(row) for row in own]
async def main():
    await asyncio.gather(*[part(rows[n::16]) for n in range(16)])
asyncio.run(main())
""",
    "a helper of another package": ASK
    + """
from parallel import run_all
async def main():
    await run_all([ask(row) for row in rows])
asyncio.run(main())
""",
    "workers of a queue": ASK
    + """
async def worker(queue):
    while True:
        row = await queue.get()
        print(await ask(row))
async def main():
    queue = asyncio.Queue()
    for row in rows:
        queue.put_nowait(row)
    workers = [asyncio.create_task(worker(queue)) for _ in range(32)]
    await queue.join()
asyncio.run(main())
""",
    "handed on": ASK
    + """
async def main():
    async for answer in amap(ask, rows, limit=32):
        print(answer)
    for row in rows[:3]:
        print(await ask(row))
asyncio.run(main())
""",
}


@pytest.mark.parametrize("text", ONE_BY_ONE.values(), ids=ONE_BY_ONE)
def test_coroutines_that_wait_for_one_another(text: str, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC043") == ["SRC043w"]


@pytest.mark.parametrize("text", TOGETHER.values(), ids=TOGETHER)
def test_coroutines_that_run_together(text: str, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC043") == []
