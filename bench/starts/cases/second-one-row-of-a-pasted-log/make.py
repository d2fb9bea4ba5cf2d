import random
from pathlib import Path

from bench.starts.material import instructions, link_tokenizer, write_list

ASKED = "Why does my service answer 500? This is the log:"
ANSWER = (
    "The connection pool of the orders service is exhausted: raise pool_size, or close sessions"
    " after each request."
)


def make(folder: Path) -> None:
    """820 rows of which one has a log of 650 lines in it."""
    drawn = random.Random(23)
    rows = [
        {"instruction": row["instruction"], "input": row["input"], "output": row["output"]}
        for row in instructions()[:820]
    ]
    log = "\n".join(_line(drawn) for _ in range(650))
    rows[611] = {"instruction": ASKED, "input": log, "output": ANSWER}
    write_list(folder / "data/support.json", rows)
    link_tokenizer("qwen2.5-instruct", folder / "models/Qwen2.5-7B-Instruct")


def _line(drawn: random.Random) -> str:
    clock = f"{drawn.randrange(24):02d}:{drawn.randrange(60):02d}:{drawn.randrange(60):02d}"
    at = f"2026-08-{drawn.randrange(1, 30):02d}T{clock}.{drawn.randrange(1000):03d}Z"
    path = f"/v1/{drawn.choice(('orders', 'users', 'cart'))}/{drawn.randrange(10**6)}"
    said = f"{drawn.choice(('GET', 'POST'))} {path} {drawn.choice((200, 200, 404, 500))}"
    level = drawn.choice(("INFO", "WARN", "DEBUG"))
    return f"{at} {level} pod-{drawn.randrange(16**6):06x} http {said} {drawn.randrange(900)}ms"
