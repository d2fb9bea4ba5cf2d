"""Chats made from the documentation inside installed packages."""

from __future__ import annotations

import json
import random
import re
import sysconfig
from pathlib import Path


def passages(limit: int = 6000) -> list[str]:
    """Docstrings of the installed packages and the standard library, as one line each."""
    found = []
    for name in ("stdlib", "purelib"):
        for path in sorted(Path(sysconfig.get_paths()[name]).rglob("*.py"))[:limit]:
            text = path.read_text(encoding="utf-8", errors="ignore")
            found += [
                " ".join(match.split())
                for match in re.findall(r'"""(.{80,600}?)"""', text, flags=re.S)
            ]
    return found


def write(path: Path, rows: int) -> None:
    """That many chats of one to three turns, about 1.3 kB each, as jsonl of messages."""
    rng = random.Random(0)
    source = passages()
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            messages = (
                [{"role": "system", "content": rng.choice(source)[:200]}]
                if rng.random() < 0.3
                else []
            )
            for _ in range(rng.choice((1, 1, 2, 3))):
                answer = f"{rng.choice(source)} {rng.choice(source)}"
                messages += [
                    {"role": "user", "content": rng.choice(source)},
                    {"role": "assistant", "content": answer},
                ]
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
