"""The same report to the byte in any process: whatever the order of hashes, and however many threads encode."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from truetune.demo import TOKENIZER

SECONDS = re.compile(r'"seconds": [0-9.e+-]+')


def _malformed(draw: random.Random) -> list[str]:
    """Kinds of values, roles and columns that are reported as sets."""
    lines = []
    for number in range(200):
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": f"q {number}"},
            {"role": "assistant", "content": "a"},
        ]
        if number % 3 == 0:
            turns[number % 2]["content"] = draw.choice(
                [5, None, True, ["a", "b"], {"k": 1, "z": 2}, 1.5]
            )
        if number % 7 == 0:
            turns[0]["role"] = draw.choice(["human", "narrator", "x1", "x2"])
        more = {"zeta": 1, "beta": "x", "alpha": [1]} if number % 11 == 0 else {}
        lines.append(json.dumps({"messages": turns, **more}))
        if number % 40 == 0:
            lines.append("{broken")
    return lines


def _pairs(draw: random.Random) -> list[str]:
    same = [
        {"prompt": f"p {i % 30}", "chosen": f"c {i}" * (i % 5 + 1), "rejected": f"c {i}"}
        for i in range(120)
    ]
    return [json.dumps({**pair, "extra": draw.randint(0, 3), "more": "x"}) for pair in same]


def _chats(draw: random.Random) -> list[str]:
    said = ["", "It is.", "It is <|im_end|> open.", " spaced ", "It is."]
    turns = [
        [("user", f"q {i % 50}"), (draw.choice(["assistant", "bot", "gpt"]), draw.choice(said))]
        for i in range(300)
    ]
    return [
        json.dumps({"messages": [{"role": role, "content": text} for role, text in row]})
        for row in turns
    ]


SETS = {"malformed": _malformed, "pairs": _pairs, "chats": _chats}


CHECK_ALL = """
import sys
from truetune.cli import truetune_group
tokenizer, *names = sys.argv[1:]
for name in names:
    words = ["check", f"{name}.jsonl", "-t", tokenizer, "-o", f"{name}.json", "--quiet"]
    assert truetune_group(words, standalone_mode=False) in (0, 1), name
"""


def _reports(folder: Path, **environment: str) -> dict[str, str]:
    """Check each of SETS, all in one new process. Returns the reports."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK_ALL, str(TOKENIZER), *SETS],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {
        name: SECONDS.sub('"seconds": 0', (folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in SETS
    }


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Those of three processes, by the names of SETS."""
    folder = tmp_path_factory.mktemp("sets")
    for name, make in SETS.items():
        lines = "\n".join(make(random.Random(5))) + "\n"
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return [
        _reports(folder, PYTHONHASHSEED=seed, RAYON_NUM_THREADS=threads)
        for seed, threads in (("0", "1"), ("1", "2"), ("2", "4"))
    ]


@pytest.mark.parametrize("name", SETS)
def test_the_report_does_not_depend_on_the_process(
    name: str, reports: list[dict[str, str]]
) -> None:
    first, *others = (made[name] for made in reports)
    assert len(json.loads(first)["findings"]) >= 3
    for other in others:
        assert other == first
