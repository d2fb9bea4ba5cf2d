"""Charts of bars as plain SVG: no script, no text inside, so that they may be stretched to any width.

A chart is drawn by the macro `chart` of `bars.html.jinja`: axis labels stand beside it as HTML, its numbers in a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

CHART_HEIGHT = 100
BAR_PITCH = 10
"""Of a bar with its gap, in units of the drawing"""


@dataclass(frozen=True, slots=True)
class Bar:
    """Parts on top of each other, (value, class) each."""

    parts: Sequence[tuple[float, str]]
    title: str
    href: str | None = None
    """Where a press on it leads"""


@dataclass(frozen=True, slots=True)
class BarChart:
    """Bars side by side, with what a reader who does not see them needs."""

    title: str
    bars: Sequence[Bar]
    top: float
    """The value of the full height"""
    says: str
    """`top` as it is written"""
    ticks: Sequence[str]
    """One at the left edge of each bar and one at the right end; or a few, evenly from end to end"""
    about: str = ""
    line: float | None = None
    """A mark, in bars from the left"""
    legend: Sequence[tuple[str, str]] = ()
    """(class, name)"""
    table: tuple[Sequence[str], Sequence[Sequence[Any]]] | None = None
    """Names of the columns, and lines; a cell may be (text, address)"""

    @property
    def width(self) -> int:
        return BAR_PITCH * max(1, len(self.bars))

    @property
    def at_bars(self) -> bool:
        return len(self.ticks) == len(self.bars) + 1

    @property
    def mark(self) -> float | None:
        return None if self.line is None else round(BAR_PITCH * self.line, 1)

    def columns(self) -> Iterable[dict[str, Any]]:
        """What is drawn: (title, href, x, width, rects) of each bar."""
        gap = 1 if len(self.bars) <= 30 else 0.5
        for i, bar in enumerate(self.bars):
            at, rects = 0.0, []
            for value, name in bar.parts:
                height = CHART_HEIGHT * value / self.top if self.top else 0.0
                if height > 0:
                    tall = max(height, 1.0) if not at else height
                    rects.append(
                        {
                            "y": round(CHART_HEIGHT - at - tall, 2),
                            "height": round(tall, 2),
                            "name": name,
                        }
                    )
                    at += tall
            yield {
                "title": bar.title,
                "href": bar.href,
                "x": BAR_PITCH * i + gap / 2,
                "width": BAR_PITCH - gap,
                "rects": rects,
            }


def thin_labels(labels: Sequence[str], most: int = 7) -> list[str]:
    """At most so many of the labels, evenly, and the last one; the others empty."""
    step, last = -(-len(labels) // most), len(labels) - 1
    return [
        label if i == last or (i % step == 0 and i <= last - step) else ""
        for i, label in enumerate(labels)
    ]
