import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openai import OpenAI

client = OpenAI(base_url=os.environ["LLM_URL"], api_key="none", max_retries=20)
NAME = os.environ["LLM_NAME"]


def assess(path):
    claim = json.loads(path.read_text())["claim"]
    r = client.chat.completions.create(
        model=NAME,
        messages=[{"role": "user", "content": "Assess this claim:\n" + claim}],
        temperature=0,
        max_tokens=500,
    )
    path.with_suffix(".out.txt").write_text(r.choices[0].message.content)
    return path.name


if __name__ == "__main__":
    files = sorted(p for p in Path("inbox").glob("*.json"))
    with ThreadPoolExecutor(16) as pool:
        for name in pool.map(assess, files):
            print("done", name, flush=True)
