"""Charts of bars as plain SVG: no script, no text inside, so that they may be stretched to any width.

A chart is drawn by the macro `chart` of `bars.html.jinja`: axis labels stand beside it as HTML, its numbers in a
table below it. So it needs no library of charts, prints, and can be read by a screen reader. The trade-off: what a
bar is can be learned from its title or the table only, for there is no place for a label inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

CHART_HEIGHT = 100
"""The height of a chart in units of the drawing, so that one unit is a per cent of it"""
BAR_PITCH = 10
"""Of a bar with its gap, in units of the drawing"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: parts on top of each other, (value, class) each."""

    parts: Sequence[tuple[float, str]]
    title: str
    href: str | None = None
    """Where a press on it leads"""


@dataclass(frozen=True, slots=True)
class BarChart:
    """A bar chart: bars side by side, with what a reader who does not see them needs."""

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
        """The width of all bars in units of the drawing."""
        return BAR_PITCH * max(1, len(self.bars))

    @property
    def has_tick_at_each_bar_edge(self) -> bool:
        """Is there a tick at the edge of every bar (and not a few from end to end)?"""
        return len(self.ticks) == len(self.bars) + 1

    @property
    def mark_x(self) -> float | None:
        """Where the mark is in units of the drawing; None without one."""
        return None if self.line is None else round(BAR_PITCH * self.line, 1)

    def bar_rectangles(self) -> Iterable[dict[str, Any]]:
        """What the template draws: title, href, x, width and rects of each bar."""
        # Many bars are thin: a whole unit between them would take a tenth of the ink from the
        # chart. Chosen, not measured.
        gap = 1 if len(self.bars) <= 30 else 0.5
        for i, bar in enumerate(self.bars):
            at, rects = 0.0, []
            for value, name in bar.parts:
                height = CHART_HEIGHT * value / self.top if self.top else 0.0
                if height > 0:
                    # The lowest part of a bar is at least one unit high: one row of a million
                    # must not look like none.
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
    """Blank out labels so that about `most` are left, evenly, and always the last one."""
    # Rounded up, so that there are never more than `most` besides the last.
    step, last = -(-len(labels) // most), len(labels) - 1
    return [
        # The last label is always there, so the one before it is left out where both would
        # touch.
        label if i == last or (i % step == 0 and i <= last - step) else ""
        for i, label in enumerate(labels)
    ]
