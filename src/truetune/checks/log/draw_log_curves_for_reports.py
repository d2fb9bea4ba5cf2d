"""Draws curves of a log as a figure of a report, and writes numbers of steps in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from truetune.checks.plot_of_finding import Figure, Mark, Series
from truetune.logs.run_log import Curve

# Two points of each: about the width of a figure in a terminal or a page, in which more could not be seen apart.
MAX_BLOCKS = 120
MAX_SHOWN_STEPS = 6
"""Steps that a message lists before it counts the rest: they fit one line"""


def draw_curves(
    title: str,
    curves: Mapping[str, Curve],
    marks: Mapping[str, float] | None = None,
    *,
    log: bool = False,
) -> Figure:
    """The curves, thinned to what can be drawn; `marks`: label -> step."""
    thinned = {name: thin_curve_keeping_extremes(curve) for name, curve in curves.items()}
    series = tuple(
        Series(name, tuple(curve.step.tolist()), tuple(curve.value.tolist()))
        for name, curve in thinned.items()
        if curve
    )
    lines = tuple(Mark(step, label) for label, step in (marks or {}).items())
    return Figure(title, series, lines, log)


def thin_curve_keeping_extremes(curve: Curve, blocks: int = MAX_BLOCKS) -> Curve:
    """Thin a curve: of each of so many blocks keep the lowest and the highest point, so that no
    spike is lost.
    """
    n = curve.step.size
    if n <= 2 * blocks:
        return curve
    kept: set[int] = set()
    # infinities would be the extreme of their block and hide its spike; a figure can't draw them
    value = np.where(np.isfinite(curve.value), curve.value, np.nan)
    for part in np.array_split(np.arange(n), blocks):
        seen = value[part]
        if np.isnan(seen).all():
            kept.add(int(part[0]))
        else:
            kept |= {int(part[np.nanargmin(seen)]), int(part[np.nanargmax(seen)])}
    order = sorted(kept)
    return Curve(curve.step[order], curve.value[order])


def describe_steps(found: Iterable[float]) -> str:
    """Step numbers in words: `step 5`, `steps 3, 7, 9, ... (12 in all)`."""
    all_of = [f"{step:,.0f}" for step in found]
    shown = ", ".join(all_of[:MAX_SHOWN_STEPS])
    if len(all_of) > MAX_SHOWN_STEPS:
        return f"steps {shown}, ... ({len(all_of):,} in all)"
    return f"step{'s' if len(all_of) > 1 else ''} {shown}"
