"""Sorts the logged curves of a run into charts, and prepares what each chart is drawn from.

Known quantities have a panel each, in the order in which a run is judged: loss first, then answers, then what drives
them. Whatever else a trainer logs is drawn after them, up to a limit, so that a custom metric is not lost. A chart is
SVG as it stands, and holds the numbers for a script that lets a reader zoom: without scripts it is still a chart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from truetune.checks.plot_of_finding import Figure, Series
from truetune.report.figure_as_characters_or_svg import (
    DASHES,
    LINE_COLOURS,
    Axes,
    add_vertical_margins,
    axes_of_figure,
    plot_svg,
    y_ticks,
)
from truetune.report.visible_text import escape_invisible_characters

Curves = Mapping[str, Mapping[str, Any]]
"""Name -> {"x", "y", "smooth"} of one run's JSON"""


class Panel(NamedTuple):
    """One chart of the page: its title, and which logged names it takes."""

    title: str
    names: tuple[str, ...] = ()
    prefix: str = ""
    """All names that begin so"""
    share: bool = False
    """Its axis goes from 0 to 1"""

    def names_for_panel(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that this panel takes: in the panel's own order, then as the run lists
        them.
        """
        own = [n for n in names if n in self.names or (self.prefix and n.startswith(self.prefix))]
        order = (*self.names, *own)
        return sorted(own, key=order.index)


PANELS = (
    Panel("Loss", ("loss", "eval_loss")),
    Panel("Loss by source", prefix="loss/"),
    Panel("Held-out loss by source", prefix="eval_loss/"),
    Panel("Answers: stop, loop, echo", tuple(f"answers/{name}" for name in (
        "stopped", "looped", "echoed", "markers", "empty", "garbage", "switched")), share=True),
    Panel("P(stop) after the references, median", ("answers/stop_probability",), share=True),
    Panel("Answers and references", tuple(f"answers/{name}" for name in (
        "overlap", "exact", "parsed", "agrees", "repetition")), share=True),
    Panel("Length of the answers over the references'", ("answers/length_ratio",)),
    Panel("Learning rate", ("learning_rate",)),
    Panel("Gradient norm", ("grad_norm",)),
    Panel("Tokens a second", ("tokens_per_second",)),
    Panel("Rewards", ("rewards/chosen", "rewards/rejected", "rewards/margins")),
    Panel("Pairs ranked correctly", ("rewards/accuracies", "eval_rewards/accuracies"), share=True),
    Panel("Log probability of the answers", ("logps/chosen", "logps/rejected")),
    Panel("Reward", ("reward", "reward_std")),
    Panel("Token accuracy", ("mean_token_accuracy", "eval_mean_token_accuracy"), share=True),
)  # fmt: skip
LINE_NAMES = {
    "eval_loss": "held-out loss", "answers/stop_probability": "P(stop)", "answers/markers": "role markers",
    "answers/switched": "another language", "answers/length_ratio": "length", "grad_norm": "gradient norm",
    "tokens_per_second": "tokens a second", "answers/exact": "word for word",
}  # fmt: skip
"""Names that say more"""
UNCHARTED_ENDINGS = (
    "runtime",
    "per_second",
    "num_tokens",
    "wall_time",
    "total_flos",
    "train_loss",
    "num_input_tokens_seen",
)
"""Ends of names that say nothing of what is learned"""
# Chosen, not measured: a trainer may log any number of quantities; how many are left out is said in
# the page.
MAX_OTHER_CHARTS = 24
"""Other quantities that are drawn"""


@dataclass(frozen=True)
class CurveLine:
    """One line of a chart."""

    name: str
    run: int
    number: int
    """Its colour"""
    dash: str
    curve: Mapping[str, Any]

    @property
    def series(self) -> Series:
        """The curve as numbers, for a plot."""
        return _series_from_json(self.name, self.curve)


@dataclass(frozen=True)
class CurveChart:
    """A panel with the curves of all runs."""

    title: str
    lines: tuple[CurveLine, ...]
    linear: Axes
    log: Axes | None
    """None where a logarithm shows nothing more"""

    def svg(self) -> str:
        """The chart as static SVG, as it is before a script takes it over."""
        figure = Figure(self.title, tuple(line.series for line in self.lines))
        return plot_svg(
            figure,
            self.linear,
            [line.number for line in self.lines],
            [line.dash for line in self.lines],
        )

    def script_values(self) -> dict[str, Any]:
        """The chart as plain values, from which the page's script draws."""
        return {
            "title": self.title,
            "linear": _axes_json(self.linear),
            "log": self.log and _axes_json(self.log),
            "lines": [
                {
                    "name": escape_invisible_characters(line.name),
                    "run": line.run,
                    "x": line.curve["x"],
                    "y": line.curve["y"],
                    "smooth": line.curve.get("smooth"),
                }
                for line in self.lines
            ],
        }


def panel_charts_other_charts_and_left_out(
    runs_json: Sequence[Mapping[str, Any]],
) -> tuple[list[CurveChart], list[CurveChart], int]:
    """The charts of one run, or of several over one axis.

    Args:
        runs_json: the entries of `runs_json` of a report's JSON; each has `curves`.

    Returns:
        (charts of PANELS, charts of other quantities, how many other quantities are left out).
    """
    curves: list[Curves] = [run["curves"] for run in runs_json]
    names = _names_of_curves(curves)
    # All charts share one x axis, so that a finger put at a spike of the loss finds the learning rate of that step.
    span = _step_range(curves)
    panels: list[CurveChart] = []
    taken: set[str] = set()
    for panel in PANELS:
        own_names = panel.names_for_panel(names)
        taken |= set(own_names)
        lines = [name for name in own_names if _is_quantity_drawn_in_panel(panel, name, curves)]
        if lines:
            panels.append(_make_chart(panel, lines, curves, span))
    left = [name for name in names if name not in taken and not name.endswith(UNCHARTED_ENDINGS)]
    others = [_make_chart(Panel(name), [name], curves, span) for name in left[:MAX_OTHER_CHARTS]]
    return panels, others, len(left) - len(others)


def _names_of_curves(curves: Sequence[Curves]) -> list[str]:
    """Each quantity once that any run has a point of, in the order in which runs list them."""
    names = (
        name
        for run_curves in curves
        for name, curve in run_curves.items()
        if has_drawable_point(curve)
    )
    return list(dict.fromkeys(names))


def _is_quantity_drawn_in_panel(panel: Panel, name: str, curves: Sequence[Curves]) -> bool:
    """Is a quantity drawn in a panel? Shares that stay at 0 in all runs are not, but for the first
    two names of the panel, of which a flat line at 0 is news.
    """
    return not panel.share or name in panel.names[:2] or _has_nonzero_value_in_any_run(curves, name)


def has_drawable_point(curve: Mapping[str, Any]) -> bool:
    """Has a curve any point that can be drawn?"""
    return any(y is not None for y in curve["y"])


def _make_chart(
    panel: Panel, names: Sequence[str], curves: Sequence[Curves], span: tuple[float, float]
) -> CurveChart:
    """The chart of a panel, with its frame on a linear axis and, where it shows more, on a logarithmic one."""
    lines = tuple(_panel_lines(panel, names, curves))
    figure = Figure(panel.title, tuple(line.series for line in lines))
    linear = add_vertical_margins(axes_of_figure(figure))
    # A share that is logged in per cent or is no share at all keeps an axis of its own.
    if panel.share and linear.low > -0.5 and linear.high < 1.5:
        linear = linear._replace(low=0.0, high=1.0)
    # Both frames are made here, because the script that switches between them must not compute
    # ticks of its own.
    log = axes_of_figure(Figure(panel.title, figure.series, log=True))
    frames = [
        frame._replace(left=span[0], right=span[1]) for frame in (linear, add_vertical_margins(log))
    ]
    return CurveChart(
        # A fifth of a decade is a factor of 1.6: on so short a range a logarithm looks like the
        # linear chart.
        panel.title,
        lines,
        frames[0],
        frames[1] if log.log and log.high - log.low > 0.2 else None,
    )


def _panel_lines(
    panel: Panel, names: Sequence[str], curves: Sequence[Curves]
) -> Iterator[CurveLine]:
    """A line for each quantity and run."""
    several = len(curves) > 1
    for number, name in enumerate(names):
        for run, run_curves in enumerate(curves):
            if name in run_curves and has_drawable_point(run_curves[name]):
                # With two runs the dash says which run, and the colour which quantity; with one
                # the dash repeats the colour for those who see none.
                dash = DASHES[run % len(DASHES)] if several else DASHES[number % len(DASHES)]
                line_name = LINE_NAMES.get(name) or name.removeprefix(
                    panel.prefix or "answers/"
                ).replace("_", " ")
                yield CurveLine(line_name, run, number % LINE_COLOURS, dash, run_curves[name])


def _series_from_json(name: str, curve: Mapping[str, Any]) -> Series:
    """A curve of the JSON as numbers; null is NaN."""
    points = [
        # Null in the JSON was NaN in the log: the line is broken there and not joined over it.
        (float(x), math.nan if y is None else float(y))
        for x, y in zip(curve["x"], curve["y"], strict=True)
        if x is not None
    ]
    return Series(name, tuple(x for x, _ in points), tuple(y for _, y in points))


def _step_range(curves: Sequence[Curves]) -> tuple[float, float]:
    """From the first to the last step of all curves."""
    steps = [
        float(x)
        for run_curves in curves
        for curve in run_curves.values()
        for x in curve["x"]
        if x is not None
    ]
    left, right = (min(steps), max(steps)) if steps else (0.0, 1.0)
    return (left, right) if right > left else (left, left + 1)


def _has_nonzero_value_in_any_run(curves: Sequence[Curves], name: str) -> bool:
    """Has a quantity a value other than 0 in any run?"""
    return any(y for run_curves in curves for y in run_curves.get(name, {"y": ()})["y"])


def _axes_json(frame: Axes) -> dict[str, Any]:
    """A plot's axes as the page's script reads them."""
    return {
        "left": frame.left,
        "right": frame.right,
        "low": frame.low,
        "high": frame.high,
        "ticks": y_ticks(frame),
    }
