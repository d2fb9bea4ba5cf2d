import json
import os
import sys
import time

import requests

BASE = os.environ.get("LLM_URL", "http://localhost:8000")
MODEL = "tours"


def ask(question: str, max_tokens: int = 300) -> dict:
    r = requests.post(
        f"{BASE}/v1/completions",
        json={
            "model": MODEL,
            "prompt": question,
            "max_tokens": max_tokens,
            "temperature": 0.2,
        },
        timeout=120,
    )
    r.raise_for_status()
    return r.json()["choices"][0]


def main(path: str, out: str):
    started = time.time()
    n = 0
    with open(path) as src, open(out, "w") as dst:
        for line in src:
            row = json.loads(line)
            question = row["prompt"][-1]["content"]
            choice = ask(question)
            dst.write(
                json.dumps(
                    {
                        "prompt": question,
                        "prediction": choice["text"],
                        "finish_reason": choice["finish_reason"],
                        "reference": row["completion"][0]["content"],
                    }
                )
                + "\n"
            )
            n += 1
    print(f"{n} answers in {time.time() - started:.0f} s -> {out}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
