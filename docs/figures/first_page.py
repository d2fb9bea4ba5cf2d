"""The picture of the first page: what `truetune check` prints of a few rows, and one of them token by token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from drawing import CELL, LINE, Drawing, legend, line, mono, text
from prompts import LEFT, lines_of_text, sources_of, token_boxes, view_of_chat

from truetune.demo import TOKENIZER

COLUMNS = 94
WIDTH = 2 * LEFT + CELL * COLUMNS
MAX_LINES = 18
"""Of the output: the verdict and the first findings; the figures below them have pictures of their own"""
ROW_HEIGHT = 18
GOOD = [
    {"role": "user", "content": "Is the shop open on Sunday?"},
    {"role": "assistant", "content": "Yes, from ten to four."},
]
ROWS = [
    GOOD,
    [{"role": "user", "content": "Do you fix lamps?"}, {"role": "bot", "content": "We do."}],
    [{"role": "user", "content": "Where is my order?"}, {"role": "assistant", "content": ""}],
    [
        {"role": "user", "content": "Can I pay by card?"},
        {"role": "assistant", "content": "<|im_start|>assistant\nYes, with any card."},
    ],
]
KIND_OF_LINE = {"error": "bad bold", "warning": "bold", "$": "bold"}


def checked() -> Drawing:
    """The output of a check, and below it the tokens of its first row."""
    y = 30.0
    parts = []
    for shown in ["$ truetune check chats.jsonl -t path/to/model", *_output_of_check()]:
        parts.append(_terminal_line(y, shown))
        y += ROW_HEIGHT
    y += 10
    parts.append(line(0, y, WIDTH, y))
    y += 28
    parts.append(
        text(LEFT, y, "One row as the model sees it: underlined tokens are learned", "bold")
    )
    y += 32
    view = view_of_chat(GOOD)
    for begin, end in lines_of_text(view.example.rendering.text):
        parts += token_boxes(view, begin, end, y)
        y += LINE + 4
    parts.append(legend(LEFT, y + 2, sources_of(view)))
    about = (
        "The terminal shows a check of four chats: an unknown role, an empty answer and a control token in an"
        " answer, each with its line and a fix. Below, a chat token by token: the answer and its stop token"
        " are learned, and the rest is not."
    )
    return Drawing("truetune check", about, WIDTH, y + 24, parts)


def _terminal_line(y: float, shown: str) -> str:
    """A line of the terminal; those that name a finding are coloured by its severity."""
    first = shown.split("[")[0].split(" ")[0]
    kind = KIND_OF_LINE.get(first)
    drawn = mono(LEFT, y, shown) if shown else ""
    return drawn.replace('class="mono"', f'class="mono {kind}"') if kind else drawn


def _output_of_check() -> list[str]:
    """The first lines that `truetune check` prints of ROWS."""
    with tempfile.TemporaryDirectory() as folder:
        _write_rows(Path(folder) / "chats.jsonl", ROWS)
        ran = subprocess.run(
            [sys.executable, "-m", "truetune", "check", "chats.jsonl", "-t", str(TOKENIZER)],
            cwd=folder,
            env=os.environ | {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    return ran.stdout.splitlines()[:MAX_LINES]


def _write_rows(path: Path, rows: list[list[dict[str, Any]]]) -> None:
    """Chats as lines of JSON."""
    lines = [json.dumps({"messages": messages}) for messages in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
