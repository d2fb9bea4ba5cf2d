"""Round numbers along an axis, for plots of the terminal and of the page.

Ticks are multiples of 1, 2 or 5 times a power of ten, as people read axes. All of it works at the ends of the range
of floats as well: losses of broken runs are 1e300, or differ in the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

MIN_STEP, MAX_STEP = 1e-290, 1e290
"""Steps outside of this range get no round ticks: their multiples come near the ends of the range of floats"""
MAX_DECADES = 6
"""More decades than that are not marked each"""


def linear_ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers along an axis: multiples of 1, 2 or 5 times a power of ten.

    Args:
        low: the left or lower end.
        high: the other end.
        count: about so many.
        whole: only whole numbers, such as steps.

    Returns:
        The ticks from low to high; both ends where there is no round number between them.
    """
    # Halved first: high - low of the two largest floats would be infinite.
    rough = (high / 2 - low / 2) / count * 2
    # A range of less than a billionth of its values has no round numbers that differ when they
    # are printed.
    if not MIN_STEP < rough < MAX_STEP or rough < 1e-9 * max(abs(low), abs(high)):
        return [low, high]
    power = 10.0 ** math.floor(math.log10(rough))
    # 0.999: a step of 4.9999999 by rounding is 5, and not 10.
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough * 0.999)
    step = max(1.0, step) if whole else step
    # 1e-9: an end that is a multiple but for rounding still has its tick.
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)] or [low, high]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from 10^low to 10^high, thinned; with their 2 and 5 times where there are few."""
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    # Over two decades or more the powers are enough; within fewer, 2 and 5 times them are
    # needed to read values.
    if last - first >= 2:
        return [
            float(f"1e{k}")
            for k in range(first, last + 1, -(-(last - first) // MAX_DECADES))
            if -300 < k < 300
        ]
    inside = [
        v
        for k in range(first - 1, last + 1)
        for v in _log_ticks_of_decade(k)
        if low - 1e-9 <= math.log10(v) <= high + 1e-9
    ]
    ends = [v for v in (low, high) if abs(v) < 300]
    return inside if len(inside) > 1 else [10.0**v for v in ends]


def _log_ticks_of_decade(power: int) -> Iterator[float]:
    """1, 2 and 5 times ten to `power`, where floats can hold them."""
    if -300 < power < 300:
        yield from (float(f"{k}e{power}") for k in (1, 2, 5))


def tick_label(value: float, step: float = 0.0) -> str:
    """A number in few characters, with the digits that a step of that size needs: `0.25`, `40k`, `1.5M`, `2e-05`."""
    size = abs(value)
    # Without a step there is no precision to keep to: four digits.
    if not step:
        return f"{value:.4g}"
    # Rounding makes 1e-17 of what is the 0 of the axis.
    if size < step / 1000:
        return "0"
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit * (10 if letter == "k" else 1) and size < 1e12:
            return f"{value / unit:,.10g}{letter}" if step >= unit / 1000 else f"{value:,.10g}"
    if size >= 1e12 or size < 1e-3:
        return f"{value:.4g}"
    return f"{value:,.{min(12, max(0, -math.floor(math.log10(step) + 1e-9)))}f}"
