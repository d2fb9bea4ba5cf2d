"""Ledgers as stacked bars: the demo's support chat under settings of `learn`, and batches of trainers."""

from __future__ import annotations

import json
from pathlib import Path

from drawing import Drawing, box, legend, line, text

from truetune import DataReport, check
from truetune.demo import DATA, TOKENIZER
from truetune.render.rendering import Source

LEFT, WIDTH, HEIGHT = 20, 720, 28
LEARN = {
    "assistant": "every answer (default)",
    "last": "the last answer of each chat",
    "all": "every token",
}
KEY = "full colour: learned; pale, behind the line: context"
Rows = list[tuple[str, int, int]]
"""(source, supervised, context)"""


def ledger() -> Drawing:
    """The demo, under three settings."""
    bars: dict[str, Rows] = {}
    for learn, about in LEARN.items():
        report = check(DATA, TOKENIZER, learn=learn)
        assert isinstance(report, DataReport)
        bars[f"learn: {learn}, {about}"] = [
            (s.name.lower(), *counts) for s, *counts in report.ledger.rows()
        ]
    return _bars("What a run learns of the demo's support chat, by source", bars)


def audited() -> Drawing:
    """The trainers of audited.json."""
    found = json.loads((Path(__file__).parent / "audited.json").read_text(encoding="utf-8"))
    bars = {name: [(key, *counts) for key, counts in rows.items()] for name, rows in found.items()}
    return _bars("What reaches the loss: five trainers on the same eight chats", bars)


def _bars(title: str, bars: dict[str, Rows]) -> Drawing:
    parts, y, words = [text(LEFT, 28, title, "bold")], 52.0, []
    for name, rows in bars.items():
        learned, total = sum(row[1] for row in rows), sum(sum(row[1:]) for row in rows)
        words.append(f"{name}: {learned:,} of {total:,} tokens learned")
        parts += [
            text(LEFT, y, name),
            text(WIDTH - LEFT, y, words[-1].rpartition(": ")[2], "soft", "end"),
        ]
        parts += _bar(rows, y + 9, (WIDTH - 2 * LEFT) / total)
        y += HEIGHT + 36
    keys = [
        (s.name.lower(), s.label)
        for s in Source
        if any(s.name.lower() == row[0] for rows in bars.values() for row in rows)
    ]
    parts += [
        legend(LEFT, y, keys[:5]),
        legend(LEFT, y + 20, keys[5:]),
        text(WIDTH - LEFT, y + 20, KEY, "soft", "end"),
    ]
    return Drawing(title, "; ".join(words), WIDTH, y + 36, parts)


def _bar(rows: Rows, y: float, scale: float) -> list[str]:
    parts, x = [], float(LEFT)
    for kind, pick in (("", 1), ("context", 2)):
        for row in rows:
            width = row[pick] * scale
            if width:
                parts.append(box(x, y, max(width - 0.5, 0.5), HEIGHT, row[0], kind))
            x += width
        if not kind:
            parts.append(line(x, y - 4, x, y + HEIGHT + 4, "line"))
    return parts
