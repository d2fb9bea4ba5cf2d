"""Reports to draw: of the demo's broken set, and of hostile strings."""

from __future__ import annotations

import json

import pytest

import truetune
from truetune.checks.reports import DataReport
from truetune.demo import BROKEN, TOKENIZER

HOSTILE = (
    "<script>alert(1)</script>", "[bold red]x[/]", "\x1b[31mred\x1b[0m", "\u202eright to left \u05d0\u05d1",
    "👩‍👩‍👧 日本", "\x00", "\x9b31m", "</style><img src=x onerror=alert(1)>", "{{ 7 * 7 }}{% raw %}",
    "a\tb\r\nc", "'\"&", "[a link](https://example.com)", "{0}", "\ud83e", "a\u00a0b\u200bc",
)  # fmt: skip


@pytest.fixture(scope="package")
def broken() -> DataReport:
    """The demo's broken set, cut at 512 tokens."""
    report = truetune.check(data=str(BROKEN), tokenizer=str(TOKENIZER), max_length=512)
    assert isinstance(report, DataReport)
    return report


@pytest.fixture(scope="package")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> DataReport:
    """Rows whose prompts, answers, column names and file name attack the page, the terminal or a viewer."""
    rows = [
        {
            "messages": [{"role": role, "content": text}, {"role": "assistant", "content": text}],
            text: text,
        }
        for text in HOSTILE
        for role in ("user", text)
    ]
    path = tmp_path_factory.mktemp("hostile") / "<b>&\x1b[31m{0}[a](b)\u202e.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = truetune.check(data=str(path), tokenizer=str(TOKENIZER))
    assert isinstance(report, DataReport)
    return report
