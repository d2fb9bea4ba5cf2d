"""A finding's figure as rows of characters for a terminal, and as SVG for a page.

Both take their ranges from the same `Axes`, so that a spike stands at the same place in both. The terminal draws the
first series as braille dots, which hold two by four points a cell. The SVG has no library and no script: it is put
into pages that may load nothing. The trade-off: no smoothing and no zoom; the script of the page adds what it needs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from truetune.checks.plot_of_finding import Figure, Mark, Series
from truetune.report.axis_ticks import linear_ticks, log_ticks, tick_label
from truetune.report.visible_text import escape_invisible_characters

# Chosen, not measured: eight rows of four dots show the shape of a loss, and leave room for the
# finding around it.
PLOT_ROWS = 8
BRAILLE_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille character by column and row"""
FIRST_BRAILLE = 0x2800
"""The braille character without dots: its Unicode block lists all 256 by their bits"""
POINT_SIGNS = {True: "⠒○×+", False: "*ox+"}
"""What series are drawn with; with Unicode the first is a line of braille dots."""
SERIES_COLOURS = ("cyan", "magenta", "yellow", "green")
HEIGHT, WIDE, HIGH = 150, 2000, 1000
"""Pixels of a plot; units of its lines, which are stretched"""
DASHES = ("", "7 4", "2 4", "9 4 2 4")
LINE_COLOURS = 8
"""Colours of lines: classes `line-0` to `line-7`"""
MAX_DOTTED_POINTS = 16
"""Up to so many points of a line are dots, too"""


class Axes(NamedTuple):
    """The ranges of a plot: x from left to right, y from low to high, as logarithms where `log` is
    set.
    """

    left: float
    right: float
    low: float
    high: float
    log: bool

    def x_place_across_plot(self, value: float) -> float:
        """The place of an x value across the plot: 0 at the left to 1 at the right."""
        # Halves are subtracted: the difference of two finite floats may be infinite, that of
        # their halves is not (test_plot draws any floats there are).
        return (value / 2 - self.left / 2) / (self.right / 2 - self.left / 2)

    def y_place_in_plot(self, value: float) -> float | None:
        """The place of a y value in the plot: 0 at the bottom to 1 at the top; None where it can't be drawn."""
        # A gap is drawn where there is no value; 0 would be a lie, and a logarithm has no place
        # for it.
        if not math.isfinite(value) or (self.log and value <= 0):
            return None
        value = math.log10(value) if self.log else value
        return (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)

    def y_label_at_height(self, share: float) -> str:
        """The label of the y value at a share of the height."""
        value = (1 - share) * self.low + share * self.high
        # Room above the greatest float would overflow when it is turned back into a value.
        return f"{10 ** min(value, 308.0) if self.log else value:.3g}"


def axes_of_figure(figure: Figure) -> Axes:
    """The ranges of all series and marks; of empty figures 0 to 1. Infinite values and NaN take no place."""
    xs = [x for series in figure.series for x in series.x]
    xs += [mark.x for mark in figure.marks]
    ys = [y for series in figure.series for y in series.y if math.isfinite(y)]
    positive = [y for y in ys if y > 0]
    # A logarithm of nothing but zeros would have no axis: such a figure is drawn on a linear one.
    log = figure.log and bool(positive)
    left, right = _finite_range(xs)
    low, high = _finite_range([math.log10(y) for y in positive] if log else ys)
    return Axes(*_widen_empty_range(left, right, 0.0), *_widen_empty_range(low, high, 1.0), log)


def _finite_range(values: Sequence[float]) -> tuple[float, float]:
    """The least and the greatest finite value; (0, 1) where there is none."""
    finite = [value for value in values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (0.0, 1.0)


def _widen_empty_range(low: float, high: float, room_below: float) -> tuple[float, float]:
    """The range, widened where it is empty: by some room above, and by `room_below` times as much
    below.
    """
    if high / 2 - low / 2 > 1e-12 * max(abs(high), abs(low), 1e-280):
        return low, high
    # A flat curve is drawn in the middle of a range of its own, instead of on the edge of an
    # empty one.
    room = max(0.05 * abs(high), 1.0 if high == 0 or not room_below else 1e-280)
    return max(low - room_below * room, -sys.float_info.max), min(high + room, sys.float_info.max)


def plot_on_terminal(figure: Figure, width: int, unicode: bool) -> Text:
    """The figure as text in PLOT_ROWS rows, with its title above and its x axis below.

    Args:
        figure: what is drawn; its first series lies over the others.
        width: cells of the terminal, at most so many are used.
        unicode: may braille and box characters be used? Else it is ASCII.
    """
    frame = axes_of_figure(figure)
    # Three labels: both ends and the middle; with eight rows more would touch.
    labels = {
        0: frame.y_label_at_height(1),
        PLOT_ROWS // 2: frame.y_label_at_height(1 - (PLOT_ROWS // 2 + 0.5) / PLOT_ROWS),
        PLOT_ROWS - 1: frame.y_label_at_height(0),
    }
    gutter = max(map(len, labels.values())) + 2
    columns = max(10, width - gutter - 1)
    cells = _plot_cells(figure, frame, columns, unicode)
    bar = "│" if unicode else "|"
    text = _title_line(figure, gutter, width, unicode)
    for row in range(PLOT_ROWS):
        text.append("\n" + labels.get(row, "").rjust(gutter - 1) + " ").append(bar, style="dim")
        for character, style in cells[row]:
            text.append(character, style=style)
    text.rstrip()
    return text.append("\n" + _x_axis_line(figure, frame, gutter, columns, unicode))


def _plot_cells(
    figure: Figure, frame: Axes, columns: int, unicode: bool
) -> list[list[tuple[str, str]]]:
    """The characters of a plot, (PLOT_ROWS, columns) of (character, style); earlier series lie over
    later ones.
    """
    cells = [[(" ", "")] * columns for _ in range(PLOT_ROWS)]
    for mark in figure.marks:
        if math.isfinite(mark.x):
            for line in cells:
                line[_column_of(mark.x, frame, columns)] = ("┊" if unicode else ":", "dim")
    # From the last series to the first: the first is what the finding is about, and is drawn
    # over the others.
    for number, series in reversed(list(enumerate(figure.series))):
        style = SERIES_COLOURS[number % len(SERIES_COLOURS)]
        if unicode and number == 0:
            for (row, column), bits in _braille_dots_of_line(series, frame, columns).items():
                cells[row][column] = (chr(FIRST_BRAILLE + bits), style)
        else:
            point = POINT_SIGNS[unicode][number % len(POINT_SIGNS[unicode])]
            for row, column in _point_cells(series, frame, columns):
                cells[row][column] = (point, style)
    return cells


def _point_cells(series: Series, frame: Axes, columns: int) -> Iterator[tuple[int, int]]:
    """(row, column) of each point that can be drawn."""
    for x, y in zip(series.x, series.y, strict=True):
        height = frame.y_place_in_plot(y)
        if height is not None and math.isfinite(x):
            yield min(PLOT_ROWS - 1, int((1 - height) * PLOT_ROWS)), _column_of(x, frame, columns)


def _column_of(x: float, frame: Axes, columns: int) -> int:
    """The column of a terminal plot in which x lies."""
    # The right end of the axis is 1.0 of the width, which would be one column past the last.
    return min(columns - 1, int(frame.x_place_across_plot(x) * columns))


def _braille_dots_of_line(series: Series, frame: Axes, columns: int) -> dict[tuple[int, int], int]:
    """(row, column) -> bits of the braille dots along straight lines between finite neighbours."""
    across, down = 2 * columns - 1, 4 * PLOT_ROWS - 1
    cells: dict[tuple[int, int], int] = {}
    last: tuple[float, float] | None = None
    for x, y in zip(series.x, series.y, strict=True):
        height = frame.y_place_in_plot(y)
        if height is None or not math.isfinite(x):
            last = None
            continue
        here = (frame.x_place_across_plot(x) * across, (1 - height) * down)
        start = last or here
        # As many steps as dots along the longer side: no gap in the line, and no dot twice.
        count = max(1, math.ceil(max(abs(here[0] - start[0]), abs(here[1] - start[1]))))
        for k in range(count + 1):
            at_x = round(start[0] + (here[0] - start[0]) * k / count)
            at_y = round(start[1] + (here[1] - start[1]) * k / count)
            place = (at_y // 4, at_x // 2)
            cells[place] = cells.get(place, 0) | BRAILLE_BITS[at_x % 2][at_y % 4]
        last = here
    return cells


def _title_line(figure: Figure, gutter: int, width: int, unicode: bool) -> Text:
    """The title above the plot; where there are several series, with what each is drawn with."""
    text = Text(
        " " * gutter + _shorten_visible_text(figure.title, width - gutter, unicode), style="bold"
    )
    if len(figure.series) > 1:
        for number, series in enumerate(figure.series):
            point = POINT_SIGNS[unicode][number % len(POINT_SIGNS[unicode])]
            legend = f"   {point} {_shorten_visible_text(series.name, 30, unicode)}"
            if text.cell_len + cell_len(legend) <= width:
                text.append(legend, style=SERIES_COLOURS[number % len(SERIES_COLOURS)])
    return text


def _x_axis_line(figure: Figure, frame: Axes, gutter: int, columns: int, unicode: bool) -> str:
    """The line below a plot: first and last x, and the labels of marks where there is room, below
    their places.
    """
    line = [" "] * columns
    first, last = f"{frame.left:,.10g}", f"{frame.right:,.10g}"
    marked = [
        (f"{_shorten_visible_text(m.label, 30, unicode)} {m.x:,.10g}", m)
        for m in figure.marks
        if math.isfinite(m.x)
    ]
    placed = [(0, first), (columns - len(last), last)]
    for text, mark in marked:
        start = min(
            max(0, int(frame.x_place_across_plot(mark.x) * columns) - len(text) // 2),
            columns - len(text),
        )
        # Labels that come first take their place: marks before the ends of the axis, and the
        # last mark before the others.
        placed.insert(0, (start, text))
    for start, text in placed:
        around = line[max(0, start - 1) : start + len(text) + 1]
        # With a blank on both sides, or two numbers would be read as one; a label of wide
        # characters would shift the line.
        if start >= 0 and set(around) == {" "} and cell_len(text) == len(text):
            line[start : start + len(text)] = text
    return " " * gutter + " " + "".join(line).rstrip()


def _shorten_visible_text(text: str, width: int, unicode: bool) -> str:
    """At most `width` visible characters; without `unicode` in ASCII."""
    text = escape_invisible_characters(text)
    if not unicode:
        text = text.encode("ascii", "replace").decode()
    return text if len(text) <= width else text[: max(1, width - 3)] + "..."


def figure_svg(figure: Figure) -> str:
    """The figure with its title and legend, as wide as its place: HTML around an inline SVG, in the colour of the text
    around it, so that it fits light and dark pages.

    Classes: `figure`, `plot`, `line line-N`, `mark`, `axis`.
    """
    legend = "".join(
        f'<span class="c-entry">{legend_key_svg(number)} {_escape_html(line.name)}</span> '
        for number, line in enumerate(figure.series)
    )
    several = f'<span class="c-legend">{legend}</span>' if len(figure.series) > 1 else ""
    return (
        f'<figure class="figure"><figcaption><b>{_escape_html(figure.title)}</b> {several}</figcaption>'
        f"{plot_svg(figure, add_vertical_margins(axes_of_figure(figure)))}</figure>"
    )


def add_vertical_margins(frame: Axes) -> Axes:
    """The axes with some room above and below."""
    # A curve that touches the frame looks cut off. 8 per cent: chosen, not measured.
    more = (frame.high / 2 - frame.low / 2) * 0.08
    low, high = frame.low - more, frame.high + more
    return frame._replace(low=low, high=high) if math.isfinite(high - low) else frame


def legend_key_svg(number: int, dash: str | None = None) -> str:
    """A short piece of a line as inline SVG, which shows in a legend how that line is drawn."""
    dash = DASHES[number % len(DASHES)] if dash is None else dash
    return (
        '<svg class="c-key" width="22" height="8" viewBox="0 0 22 8" aria-hidden="true"><path'
        f' class="line line-{number % LINE_COLOURS}" d="M1 4h20" stroke="currentColor" stroke-width="2"'
        f' stroke-dasharray="{dash}"/></svg>'
    )


def plot_svg(
    figure: Figure,
    frame: Axes,
    numbers: Sequence[int] | None = None,
    dashes: Sequence[str] | None = None,
) -> str:
    """The figure alone, without title and legend, as inline SVG.

    Args:
        figure: its series and marks.
        frame: the ranges that are drawn.
        numbers: the colour of each line, from 0 to LINE_COLOURS - 1; else they are counted.
        dashes: `stroke-dasharray` of each line; else it follows from the colour, for who sees no colours.
    """
    numbers = range(len(figure.series)) if numbers is None else numbers
    dashes = [DASHES[number % len(DASHES)] for number in numbers] if dashes is None else dashes
    marks = sorted(
        (mark for mark in figure.marks if math.isfinite(mark.x)), key=lambda mark: mark.x
    )
    lines = (
        _line_svg(series, frame, number, dash)
        for series, number, dash in zip(figure.series, numbers, dashes, strict=True)
    )
    return (
        f'<svg class="plot" width="100%" height="{HEIGHT}" overflow="visible" role="img" '
        f'aria-label="{_escape_html(figure.title)}" font-family="system-ui, sans-serif" font-size="11"'
        ' fill="currentColor">'
        f'<g class="ticks-y">{"".join(_y_tick_svg(*tick) for tick in y_ticks(frame))}</g>'
        f'<g class="ticks-x">{"".join(_x_tick_svg(*tick) for tick in x_ticks(frame))}</g>'
        f"{''.join(_mark_svg(mark, frame, place % 2) for place, mark in enumerate(marks))}"
        f'<svg class="lines" width="100%" height="100%" viewBox="0 0 {WIDE} {HIGH}"'
        ' preserveAspectRatio="none" '
        f'overflow="visible">{"".join(lines)}</svg></svg>'
    )


def y_ticks(frame: Axes) -> list[tuple[float, str]]:
    """(share of the height from above in per cent, label) of round values."""
    if frame.log:
        return [
            (_clamped_per_cent(1 - (frame.y_place_in_plot(v) or 0.0)), f"{v:g}")
            for v in log_ticks(frame.low, frame.high)
        ]
    values = linear_ticks(frame.low, frame.high, 4)
    step = values[1] - values[0] if len(values) > 1 else 0.0
    return [
        (_clamped_per_cent(1 - (frame.y_place_in_plot(v) or 0.0)), tick_label(v, step))
        for v in values
    ]


def x_ticks(frame: Axes) -> list[tuple[float, str]]:
    """(share of the width in per cent, label) of round values."""
    # Steps of a run are whole numbers; a mark at step 1.5 would be none.
    values = linear_ticks(frame.left, frame.right, 5, whole=frame.right - frame.left > 2)
    step = values[1] - values[0] if len(values) > 1 else 0.0
    return [(_clamped_per_cent(frame.x_place_across_plot(v)), tick_label(v, step)) for v in values]


def svg_line_path(series: Series, frame: Axes) -> str:
    """The path of a line for SVG: between neighbours that are numbers, in whole units of WIDE and
    HIGH.
    """
    moves, last = list[str](), None
    for here in _points_in_svg_units(series, frame):
        if here is not None:
            # Relative moves in whole units: fewer characters than absolute ones with decimals,
            # which counts in a page of forty curves.
            moves.append(
                f"M{here[0]} {here[1]}h0"
                if last is None
                else f"l{here[0] - last[0]} {here[1] - last[1]}"
            )
        last = here
    return "".join(moves)


def svg_point_dots(series: Series, frame: Axes) -> str:
    """A dot at each point as an SVG path, where the points are few; else empty."""
    places = [place for place in _points_in_svg_units(series, frame) if place is not None]
    return "".join(f"M{x} {y}h0" for x, y in places) if len(places) <= MAX_DOTTED_POINTS else ""


def _points_in_svg_units(series: Series, frame: Axes) -> Iterator[tuple[int, int] | None]:
    """(x, y) of each point in units of WIDE and HIGH; None where it can't be drawn."""
    for x, y in zip(series.x, series.y, strict=True):
        height = frame.y_place_in_plot(y)
        known = height is not None and math.isfinite(x)
        yield (
            (round(frame.x_place_across_plot(x) * WIDE), round((1 - (height or 0.0)) * HIGH))
            if known
            else None
        )


def _line_svg(series: Series, frame: Axes, number: int, dash: str) -> str:
    """A line and its dots."""
    drawn = (
        'fill="none" stroke="currentColor" stroke-linejoin="round" stroke-linecap="round" '
        # The drawing is stretched to the width of the page; without this lines would be as wide
        # as they are stretched.
        'vector-effect="non-scaling-stroke"/>'
    )
    return (
        f'<path class="line line-{number % LINE_COLOURS}" d="{svg_line_path(series, frame)}" stroke-width="1.5"'
        f' stroke-dasharray="{dash}" {drawn}<path class="dots line-{number % LINE_COLOURS}"'
        f' d="{svg_point_dots(series, frame)}" stroke-width="5" {drawn}'
    )


def _y_tick_svg(share: float, text: str) -> str:
    """A horizontal grid line as SVG, with its value left of the plot."""
    return (
        f'<line x1="0" x2="100%" y1="{share}%" y2="{share}%" stroke="currentColor"'
        f' stroke-opacity=".15"/><text class="axis" x="-6" y="{share}%" dy="4"'
        f' text-anchor="end">{_escape_html(text)}</text>'
    )


def _x_tick_svg(share: float, text: str) -> str:
    """A tick below the x axis as SVG, with its value."""
    return (
        f'<line x1="{share}%" x2="{share}%" y1="100%" y2="100%" stroke="currentColor"/><text'
        f' class="axis" x="{share}%" y="100%" dy="15" text-anchor="middle">{_escape_html(text)}</text>'
    )


def _mark_svg(mark: Mark, frame: Axes, row: int) -> str:
    """A mark as SVG: a dashed vertical line at a step, with its label above; `row` counts the lines
    of text above the plot.
    """
    share = _clamped_per_cent(frame.x_place_across_plot(mark.x))
    # A label near an edge would stand outside of the plot.
    anchor = "start" if share < 25 else "end" if share > 75 else "middle"
    return (
        f'<line class="mark" x1="{share}%" x2="{share}%" y1="0" y2="100%" stroke="currentColor"'
        f' stroke-opacity=".5" stroke-dasharray="3 3"/><text x="{share}%" y="0"'
        f' dy="{-4 - 12 * row}" text-anchor="{anchor}">{_escape_html(mark.label)} {mark.x:,.10g}</text>'
    )


def _escape_html(text: str) -> str:
    """Text escaped for HTML, at most 200 characters."""
    # Cut before it is escaped, so that no escape is cut in two.
    return escape(escape_invisible_characters(text[:200]))


def _clamped_per_cent(share: float) -> float:
    """A share of the plot in per cent, held near the plot where it lies far outside."""
    # A frame may be narrower than its data: what is far outside is held near, so that no number
    # of 300 digits is written.
    return round(min(2.0, max(-1.0, share)) * 100, 2)
