"""Figures on the terminal and as SVG."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truetune.checks.plot_of_finding import Figure, Mark, Series
from truetune.report.axis_ticks import linear_ticks, log_ticks, tick_label
from truetune.report.figure_as_characters_or_svg import PLOT_ROWS, figure_svg, plot_on_terminal

FALLING = Series(
    "loss", tuple(float(x) for x in range(1, 101)), tuple(2 - x / 100 for x in range(1, 101))
)
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30)


def drawn(figure: Figure, width: int = 60, unicode: bool = True) -> list[str]:
    return plot_on_terminal(figure, width, unicode).plain.split("\n")


def test_a_falling_line_falls() -> None:
    title, *rows, below = drawn(Figure("loss", (FALLING,)))
    assert title.strip() == "loss"
    assert len(rows) == PLOT_ROWS
    first = [next(i for i, c in enumerate(row) if "\u2800" < c <= "\u28ff") for row in rows]
    assert first == sorted(first)
    assert rows[0].split()[0] == "1.99"
    assert rows[-1].split()[0] == "1"
    assert below.split() == ["1", "100"]


def test_plain_characters_are_ascii_and_marks_stand_in_their_column() -> None:
    other = Series("eval_loss", (50.0, 100.0), (1.9, 1.8))
    lines = drawn(Figure("löss", (FALLING, other), (Mark(50, "best"),)), unicode=False)
    assert all(line.isascii() for line in lines)
    assert "* loss" in lines[0]
    assert "o eval_loss" in lines[0]
    columns = {line.index(":") for line in lines[1:-1] if ":" in line}
    assert len(columns) == 1
    assert abs(lines[-1].index("best 50") + 3 - columns.pop()) <= 2


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("width", [20, 40, 100])
def test_no_line_is_wider_than_asked(width: int, unicode: bool) -> None:
    figure = Figure(
        "a very long title of a figure",
        (FALLING,),
        (Mark(1, "first"), Mark(100, "the very last one")),
    )
    assert max(map(len, drawn(figure, width, unicode))) <= max(width, 20)


@given(POINTS, POINTS, st.booleans(), st.lists(NUMBERS, max_size=3))
def test_anything_can_be_drawn(
    one: list[tuple[float, float]], two: list[tuple[float, float]], log: bool, marks: list[float]
) -> None:
    series = tuple(
        Series(f"s{i}", tuple(x for x, _ in p), tuple(y for _, y in p))
        for i, p in enumerate((one, two))
    )
    figure = Figure("<&>\x1b[0m", series, tuple(Mark(x, "m") for x in marks), log=log)
    assert len(drawn(figure)) == PLOT_ROWS + 2
    assert "nan" not in figure_svg(figure)
    ET.fromstring(figure_svg(figure))


def test_gaps_stay_open() -> None:
    values = tuple(1.0 if x < 30 or x > 70 else math.nan for x in range(100))
    row = drawn(Figure("loss", (Series("loss", tuple(map(float, range(100))), values),)))
    middle = next(
        line
        for line in row
        if "\u2824" in line or "\u2812" in line or "\u28c0" in line or "\u2809" in line
    )
    assert "    " in middle.split("│")[1].strip()
    assert (
        figure_svg(Figure("loss", (Series("loss", tuple(map(float, range(100))), values),))).count(
            "M"
        )
        == 2
    )


def test_text_from_a_log_is_escaped() -> None:
    made = figure_svg(
        Figure('<script>"', (Series("</svg>", (1.0,), (2.0,)), FALLING), (Mark(1, "<i>"),))
    )
    assert "<script>" not in made
    assert made.count("</svg>") == made.count("<svg ")
    assert "<i>" not in made
    assert 'stroke="currentColor"' in made


def test_a_log_axis_has_equal_steps_for_equal_ratios() -> None:
    series = Series("g", (0.0, 1.0, 2.0), (1.0, 10.0, 100.0))
    path = (
        figure_svg(Figure("g", (series,), log=True))
        .split('class="line line-0" d="M')[1]
        .split('"')[0]
    )
    falls = [float(move.split(" ")[1]) for move in path.split("l")[1:]]
    assert falls[0] < 0
    assert falls[0] == pytest.approx(falls[1], abs=1)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (1, 60, ["20", "40", "60"]),
        (0, 100_000, ["0", "20k", "40k", "60k", "80k", "100k"]),
        (-3, 7, ["-2", "0", "2", "4", "6"]),
    ],
)
def test_ticks_stand_at_round_numbers(low: float, high: float, said: list[str]) -> None:
    found = linear_ticks(low, high)
    assert [tick_label(value, found[1] - found[0]) for value in found] == said


@given(NUMBERS, NUMBERS, st.integers(2, 9))
def test_ticks_are_few_and_lie_between(low: float, high: float, count: int) -> None:
    if math.isfinite(low) and math.isfinite(high) and low < high:
        found = linear_ticks(low, high, count)
        assert 1 <= len(found) <= 2 * count + 2
        assert all(
            low - 1e-6 * abs(low) - 1e-290 <= v <= high + 1e-6 * abs(high) + 1e-290 for v in found
        ) or (found[0] <= high and found[-1] >= low)


def test_powers_of_ten_mark_a_log_axis() -> None:
    assert log_ticks(-5, 0) == [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1]
    assert log_ticks(0, 1.2) == [1, 2, 5, 10]
    assert len(log_ticks(-200, 200)) <= 8
