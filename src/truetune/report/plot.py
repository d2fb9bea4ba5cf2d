"""A figure as rows of characters, and as SVG."""

from __future__ import annotations

import math
import sys
from html import escape
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from truetune.checks.figure import Figure, Mark, Series
from truetune.report.text import visible

ROWS = 8
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille character by column and row (Unicode block 2800)"""
POINTS = {True: "⠒○×+", False: "*ox+"}
"""What series are drawn with; with Unicode the first is a line of braille dots."""
COLOURS = ("cyan", "magenta", "yellow", "green")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 190, 56, 12, 24, 34
DASHES = ("", "6 3", "2 3", "8 3 2 3")


class Axes(NamedTuple):
    """The ranges that a figure covers, y as its logarithm where it is drawn so."""

    left: float
    right: float
    low: float
    high: float
    log: bool

    def x(self, value: float) -> float:
        """0 to 1 from left to right."""
        return (value / 2 - self.left / 2) / (self.right / 2 - self.left / 2)

    def y(self, value: float) -> float | None:
        """0 to 1 from below; None where there is no place for the value."""
        if not math.isfinite(value) or (self.log and value <= 0):
            return None
        value = math.log10(value) if self.log else value
        return (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)

    def label(self, share: float) -> str:
        """The value at a share of the height."""
        value = (1 - share) * self.low + share * self.high
        return f"{10 ** min(value, 308.0) if self.log else value:.3g}"


def axes(figure: Figure) -> Axes:
    """The ranges of all series and marks; of empty figures 0 to 1."""
    xs = [x for series in figure.series for x in series.x if math.isfinite(x)]
    xs += [mark.x for mark in figure.marks if math.isfinite(mark.x)]
    ys = [y for series in figure.series for y in series.y if math.isfinite(y)]
    log = figure.log and any(y > 0 for y in ys)
    ys = [math.log10(y) for y in ys if y > 0] if log else ys
    left, right = (min(xs), max(xs)) if xs else (0.0, 1.0)
    low, high = (min(ys), max(ys)) if ys else (0.0, 1.0)
    return Axes(*_apart(left, right, 0.0), *_apart(low, high, 1.0), log)


def _apart(low: float, high: float, below: float) -> tuple[float, float]:
    """A range that is not empty: where it would be, as much room above it, and `below` times that below."""
    if high / 2 - low / 2 > 1e-12 * max(abs(high), abs(low), 1e-280):
        return low, high
    room = max(0.05 * abs(high), 1.0 if high == 0 or not below else 1e-280)
    return max(low - below * room, -sys.float_info.max), min(high + room, sys.float_info.max)


def terminal_plot(figure: Figure, width: int, unicode: bool) -> Text:
    """The figure in ROWS rows of at most `width` cells, with its title above and its x axis below."""
    frame = axes(figure)
    labels = {0: frame.label(1), ROWS // 2: frame.label(1 - (ROWS // 2 + 0.5) / ROWS), ROWS - 1: frame.label(0)}
    gutter = max(map(len, labels.values())) + 2
    columns = max(10, width - gutter - 1)
    cells = _cells(figure, frame, columns, unicode)
    bar = "│" if unicode else "|"
    text = _heading(figure, gutter, width, unicode)
    for row in range(ROWS):
        text.append("\n" + labels.get(row, "").rjust(gutter - 1) + " ").append(bar, style="dim")
        for character, style in cells[row]:
            text.append(character, style=style)
    text.rstrip()
    return text.append("\n" + _below(figure, frame, gutter, columns, unicode))


def _cells(figure: Figure, frame: Axes, columns: int, unicode: bool) -> list[list[tuple[str, str]]]:
    """(ROWS, columns) character and style; earlier series lie over later ones."""
    cells = [[(" ", "")] * columns for _ in range(ROWS)]
    for mark in figure.marks:
        if math.isfinite(mark.x):
            for line in cells:
                line[min(columns - 1, int(frame.x(mark.x) * columns))] = ("┊" if unicode else ":", "dim")
    for number, series in reversed(list(enumerate(figure.series))):
        style = COLOURS[number % len(COLOURS)]
        if unicode and number == 0:
            for (row, column), bits in _braille(series, frame, columns).items():
                cells[row][column] = (chr(0x2800 + bits), style)
            continue
        point = POINTS[unicode][number % len(POINTS[unicode])]
        for x, y in zip(series.x, series.y, strict=True):
            height = frame.y(y)
            if height is not None and math.isfinite(x):
                row = min(ROWS - 1, int((1 - height) * ROWS))
                cells[row][min(columns - 1, int(frame.x(x) * columns))] = (point, style)
    return cells


def _braille(series: Series, frame: Axes, columns: int) -> dict[tuple[int, int], int]:
    """Dots along straight lines between neighbours that are finite."""
    across, down = 2 * columns - 1, 4 * ROWS - 1
    cells: dict[tuple[int, int], int] = {}
    last: tuple[float, float] | None = None
    for x, y in zip(series.x, series.y, strict=True):
        height = frame.y(y)
        if height is None or not math.isfinite(x):
            last = None
            continue
        here = (frame.x(x) * across, (1 - height) * down)
        start = last or here
        count = max(1, math.ceil(max(abs(here[0] - start[0]), abs(here[1] - start[1]))))
        for k in range(count + 1):
            at_x = round(start[0] + (here[0] - start[0]) * k / count)
            at_y = round(start[1] + (here[1] - start[1]) * k / count)
            place = (at_y // 4, at_x // 2)
            cells[place] = cells.get(place, 0) | DOTS[at_x % 2][at_y % 4]
        last = here
    return cells


def _heading(figure: Figure, gutter: int, width: int, unicode: bool) -> Text:
    """The title; where there are several series, what each is drawn with."""
    text = Text(" " * gutter + _short(figure.title, width - gutter, unicode), style="bold")
    if len(figure.series) > 1:
        for number, series in enumerate(figure.series):
            point = POINTS[unicode][number % len(POINTS[unicode])]
            legend = f"   {point} {_short(series.name, 30, unicode)}"
            if text.cell_len + cell_len(legend) <= width:
                text.append(legend, style=COLOURS[number % len(COLOURS)])
    return text


def _below(figure: Figure, frame: Axes, gutter: int, columns: int, unicode: bool) -> str:
    """First and last x, and the labels of marks where there is room, below their places."""
    line = [" "] * columns
    first, last = f"{frame.left:,.10g}", f"{frame.right:,.10g}"
    marked = [(f"{_short(m.label, 30, unicode)} {m.x:,.10g}", m) for m in figure.marks if math.isfinite(m.x)]
    placed = [(0, first), (columns - len(last), last)]
    for text, mark in marked:
        start = min(max(0, int(frame.x(mark.x) * columns) - len(text) // 2), columns - len(text))
        placed.insert(0, (start, text))
    for start, text in placed:
        around = line[max(0, start - 1) : start + len(text) + 1]
        if start >= 0 and set(around) == {" "} and cell_len(text) == len(text):
            line[start : start + len(text)] = text
    return " " * gutter + " " + "".join(line).rstrip()


def _short(text: str, width: int, unicode: bool) -> str:
    text = visible(text)
    if not unicode:
        text = text.encode("ascii", "replace").decode()
    return text if len(text) <= width else text[: max(1, width - 3)] + "..."


def svg(figure: Figure) -> str:
    """The figure as an inline SVG in the colour of the text around it, so that it fits light and dark pages.

    Classes: `figure`, `line line-N`, `mark`, `axis`.
    """
    frame = axes(figure)
    parts = [
        f'<svg class="figure" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_safe(figure.title)}" '
        'font-family="system-ui, sans-serif" font-size="11" fill="currentColor">',
        f"<title>{_safe(figure.title)}</title>",
        f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="currentColor" '
        'stroke-opacity=".4"/>',
    ]
    parts += [_text(LEFT - 6, _down(share) + 4, frame.label(share), "end") for share in (0.0, 0.5, 1.0)]
    bottom = HEIGHT - BOTTOM + 14
    parts.append(_text(LEFT, bottom, f"{frame.left:,.10g}", "start"))
    parts.append(_text(WIDTH - RIGHT, bottom, f"{frame.right:,.10g}", "end"))
    parts += [_mark(mark, frame) for mark in figure.marks if math.isfinite(mark.x)]
    parts += [_line(series, frame, number) for number, series in enumerate(figure.series)]
    parts.append(_legend(figure))
    return "".join(parts) + "</svg>"


def _line(series: Series, frame: Axes, number: int) -> str:
    path, pen = [], "M"
    for x, y in zip(series.x, series.y, strict=True):
        height = frame.y(y)
        if height is None or not math.isfinite(x):
            pen = "M"
            continue
        path.append(f"{pen}{_across(frame.x(x)):.1f} {_down(height):.1f}")
        pen = "L"
    return (
        f'<path class="line line-{number}" d="{"".join(path)}" fill="none" stroke="currentColor" stroke-width="1.5" '
        f'stroke-linejoin="round" stroke-linecap="round" stroke-dasharray="{DASHES[number % len(DASHES)]}"/>'
    )


def _mark(mark: Mark, frame: Axes) -> str:
    x = _across(frame.x(mark.x))
    anchor = "start" if x < WIDTH / 4 else "end" if x > 3 * WIDTH / 4 else "middle"
    return (
        f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="currentColor" '
        'stroke-opacity=".5" stroke-dasharray="3 3"/>'
    ) + _text(x, HEIGHT - 6, f"{mark.label} {mark.x:,.10g}", anchor)


def _legend(figure: Figure) -> str:
    parts, x = [_text(LEFT, 14, figure.title, "start", weight="600")], LEFT + 8.0 * len(figure.title) + 16
    if len(figure.series) > 1:
        for number, series in enumerate(figure.series):
            parts.append(
                f'<path class="line line-{number}" d="M{x:.1f} 10h22" stroke="currentColor" stroke-width="1.5" '
                f'stroke-dasharray="{DASHES[number % len(DASHES)]}"/>'
            )
            parts.append(_text(x + 27, 14, series.name, "start"))
            x += 45 + 7.0 * len(series.name)
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str, weight: str = "400") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{_safe(text)}</text>'


def _safe(text: str) -> str:
    return escape(visible(text[:200]))


def _across(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _down(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)
