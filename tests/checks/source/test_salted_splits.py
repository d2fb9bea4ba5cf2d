"""Rows that are divided by the salted hash of a text, and by hashes that stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint

READ = "import json, zlib\nrows = [json.loads(line) for line in open('chats.jsonl')]\n"
ROWS = [{"id": number, "key": f"chat-{number}", "text": "a b"} for number in range(8)]


def found(text: str, folder: Path) -> list[str]:
    (folder / "chats.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8"
    )
    (folder / "split.py").write_text(READ + text, encoding="utf-8")
    report = lint([folder / "split.py"], select=["SRC408"], allow_unjudged=True)
    return [one.severity for one in report.findings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("val = [row for row in rows if hash(row['key']) % 10 == 0]", ["warning"]),
        ("val = [row for row in rows if abs(hash(str(row['id']))) % 10 < 1]", ["warning"]),
        ("for row in rows:\n    if hash(f\"{row['id']}\") % 10 == 0:\n        val.append(row)", ["warning"]),
        ("def is_held_out(row):\n    return hash(row['text'].strip()) % 20 == 0", ["warning"]),
        ("def part(row):\n    return 'val' if hash(row['url']) % 20 == 0 else 'train'", ["info"]),
        ("val = [row for row in rows if hash(row['id']) % 10 == 0]", []),
        ("val = [row for n, row in enumerate(rows) if hash(n) % 10 == 0]", []),
        ("val = [row for row in rows if hash(int(row['key'][5:])) % 10 == 0]", []),
        ("val = [row for row in rows if zlib.crc32(row['key'].encode()) % 10 == 0]", []),
        ("color = 'red' if hash(row['key']) % 2 == 0 else 'blue'", []),
        ("shard = hash(row['key']) % 8", []),
    ],
)  # fmt: skip
def test_divisions_by_hashes(text: str, expected: list[str], tmp_path: Path) -> None:
    assert found(text, tmp_path) == expected


def test_a_job_that_fixes_the_hashes(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("PYTHONHASHSEED=0 python split.py\n", encoding="utf-8")
    assert found("val = [row for row in rows if hash(row['key']) % 10 == 0]", tmp_path) == []
