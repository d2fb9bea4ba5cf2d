"""Measured tables of the documents as figures: laws with their margins, and what was recited."""

from __future__ import annotations

import math
import re
from pathlib import Path

from drawing import Drawing, line, text

DOCS = Path(__file__).parents[1]
LEFT, WIDTH, ROW = 20, 720, 22
NAMES, NEVER, PLOT = 250, 290, 350
"""Where the names of the laws end, where a difference of 0 is drawn, and where the scale begins"""
END, INFINITE = 650, 685
DECADES = (-4.0, 4.2)
"""The scale: powers of ten of value / tolerance"""


def laws() -> Drawing:
    """Of each law the clean and the broken run, as multiples of the tolerance, on a logarithmic scale."""
    rows = [
        (r[1], float(r[2]), _number(r[3]), _number(r[5]))
        for r in _table("laws.md", "<!-- law table -->")
    ]
    top, bottom = 74, 74 + ROW * len(rows)
    parts = [text(LEFT, 28, "Every law, on a correct trainer and on a broken one", "bold")]
    parts += [
        _dot(LEFT + 6, 46, "good"),
        text(LEFT + 18, 50, "correct", "soft"),
        _diamond(LEFT + 90, 46),
    ]
    parts.append(text(LEFT + 102, 50, "broken; times the tolerance of the law (the line)", "soft"))
    for power in (-4, -2, 0, 2, 4):
        x = _x(10.0**power)
        parts += [line(x, top - 8, x, bottom, "line" if power == 0 else "rule")]
        parts.append(
            text(x, bottom + 18, "tolerance" if power == 0 else f"{10.0**power:g}", "soft middle")
        )
    for x, name in ((NEVER, "0"), (INFINITE, "∞")):
        parts.append(text(x, bottom + 18, name, "soft middle"))
    for i, (rule, tolerance, clean, broken) in enumerate(rows):
        y = top + ROW * i + 6
        parts += [text(NAMES, y + 4, rule, "soft", "end"), line(NEVER, y, INFINITE, y)]
        parts += (
            [] if clean is None else [_dot(_x(clean / tolerance if tolerance else 0.0), y, "good")]
        )
        parts += (
            []
            if broken is None
            else [_diamond(_x(broken / tolerance if tolerance else math.inf), y)]
        )
    about = (
        f"{len(rows)} rows, one for each rule on a law. The correct run lies left of the tolerance"
        " in all of them, most at exactly 0 or a hundred times below it; the broken run lies to"
        " the right."
    )
    return Drawing("Laws and their margins", about, WIDTH, bottom + 34, parts)


def recitation() -> Drawing:
    """One row a fault: the loss, and eight squares each for what was recited and what stopped."""
    rows = [
        (r[0], r[1], _count(r[2]), _count(r[3]))
        for r in _table("recitation.md", "<!-- /?table -->")
    ]
    parts = [
        text(
            LEFT, 28, "Eight chats learned by heart: the loss, and what the model then says", "bold"
        )
    ]
    heads = ((410, "final loss", "end"), (440, "recited", ""), (580, "stopped by itself", ""))
    parts += [text(x, 56, words, "soft", anchor) for x, words, anchor in heads]
    for i, (fault, loss, recited, stopped) in enumerate(rows):
        y = 80 + ROW * i
        parts += [text(LEFT, y, fault, "soft" if i else ""), text(410, y, loss, "", "end")]
        parts += [_square(440 + 15 * k, y - 10, k < recited) for k in range(8)]
        parts += [_square(580 + 15 * k, y - 10, k < stopped) for k in range(8)]
    about = "; ".join(
        f"{fault}: loss {loss}, {recited} of 8 recited, {stopped} stopped"
        for fault, loss, recited, stopped in rows
    )
    return Drawing("What the loss does not say", about, WIDTH, 80 + ROW * len(rows), parts)


def _table(page: str, mark: str) -> list[list[str]]:
    """The cells of the rows between two marks."""
    inside = re.split(mark, (DOCS / page).read_text(encoding="utf-8"))[1]
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")] for row in inside.strip().splitlines()
    ]
    return rows[2:]


def _number(cell: str) -> float | None:
    """nan is beyond all bounds; None where nothing was measured."""
    return None if cell == "untested" else math.inf if cell == "nan" else float(cell)


def _count(cell: str) -> int:
    return int(cell.split("/")[0])


def _x(ratio: float) -> float:
    if ratio in (0, math.inf):
        return INFINITE if ratio else NEVER
    low, high = DECADES
    return PLOT + (END - PLOT) * (math.log10(ratio) - low) / (high - low)


def _dot(x: float, y: float, kind: str) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:g}" r="5"/>'


def _diamond(x: float, y: float) -> str:
    return f'<path class="bad" d="M{x:.1f} {y - 6:g}l6 6-6 6-6-6z"/>'


def _square(x: float, y: float, full: bool) -> str:
    return (
        f'<rect class="{"good" if full else "empty"}" x="{x + 0.5:g}" y="{y + 0.5:g}" width="11"'
        ' height="11" rx="2"/>'
    )
