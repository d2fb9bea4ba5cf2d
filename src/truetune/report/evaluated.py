"""What was measured on held-out rows, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.evaluation.evaluated_report import EvaluationReport
from truetune.evaluation.metrics import Metrics
from truetune.generation.evaluation_results import (
    ALL_TOKENS,
    EvaluationResults,
    ModelMeasurements,
    StopCalibration,
)
from truetune.report.draw_by_kind import draw_more
from truetune.report.text import many, share, visible

if TYPE_CHECKING:
    from truetune.evaluation.lm_eval import LmEval

SURE = 0.05
SKIPPED = 5
"""Reasons that are shown"""
NAMES = {"overlap": "overlap (token F1)", "length ratio": "length over the reference's"}


@draw_more.register
def draw(report: EvaluationReport, console: Console, verbose: bool) -> None:
    """Losses, stops, answers, tasks; against the other model where there is one."""
    found, level = report.evaluated, f"{report.confidence:.0%}"
    tables: list[Table] = []
    if found:
        tables += [_losses(found, level)] if found.model.losses else []
        tables += [_changes(found, found.other, level)] if found.changes and found.other else []
        tables += [_stops(found, level)] if found.model.stops else []
        tables += [_bins(found.model.stops)] if found.model.stops and verbose else []
    tables += list(_answers(report.metrics)) if report.metrics else []
    tables += [_agreements(found)] if found and found.agreements else []
    tables += [_tasks(report.tasks)] if report.tasks else []
    for table in tables:
        console.print(table)
        console.print()
    for line in (*(_said(found) if found else ()), *report.notes, *_of_tasks(report.tasks)):
        console.print(Text(visible(f"note: {line}"), style="dim"), soft_wrap=True)


def _losses(found: EvaluationResults, level: str) -> Table:
    table = _table("loss by source", "tokens", "nats a token", level, "perplexity")
    for loss in found.model.losses:
        table.add_row(
            loss.source,
            f"{loss.tokens:,}",
            f"{loss.mean:.4f}",
            _between(loss.low, loss.high),
            _short(loss.perplexity),
            style="bold" if loss.source == ALL_TOKENS else "",
        )
    return table


def _changes(found: EvaluationResults, other: ModelMeasurements, level: str) -> Table:
    table = _table(f"against {_named(other)}", "its loss", "difference", level, "p")
    for change in found.changes:
        theirs = other.loss(change.source)
        table.add_row(
            change.source,
            f"{theirs.mean:.4f}" if theirs else "",
            f"{change.difference:+.4f}",
            _between(change.low, change.high, "+"),
            _p(change.p),
            style=_colour(change.difference, change.p),
        )
    return table


def _stops(found: EvaluationResults, level: str) -> Table:
    """One column a model."""
    models = [model for model in (found.model, found.other) if model and model.stops]
    table = _table("P(stop)", *map(_named, models))
    for name, *cells in zip(
        *(_of_stops(model.stops, level) for model in models if model.stops), strict=True
    ):
        table.add_row(name[0], *(cell[1] for cell in (name, *cells)))
    return table


def _of_stops(stops: StopCalibration, level: str) -> Iterator[tuple[str, str]]:
    yield "where answers end, mean", _short(stops.mean)
    yield "  median", _short(stops.median)
    yield "  over 1/2", f"{stops.likely:,} of {stops.ends:,} ({share(stops.likely, stops.ends)})"
    yield "inside answers, mean", _short(stops.inside_mean)
    yield "  largest", _short(stops.largest)
    yield "  over 1/2", f"{stops.false:,} of {stops.inside:,}"
    yield (
        f"ends expected for each there is ({level})",
        f"{_short(stops.expected)} ({_between(stops.low, stops.high)})",
    )
    yield "expected calibration error", _short(stops.error)


def _bins(stops: StopCalibration) -> Table:
    table = _table("P(stop) from", "to", "places", "mean", "of them ends")
    for part in stops.bins:
        table.add_row(
            f"{part.low:.1f}",
            f"{part.high:.1f}",
            f"{part.places:,}",
            f"{part.mean:.4f}",
            f"{part.ends:,} ({part.ends / part.places:.4f})",
        )
    return table


def _answers(metrics: Metrics) -> Iterator[Table]:
    for group in metrics.groups:
        table = _table(f"answers, rows {group.name} ({group.samples})", "", "95%", "of")
        for measure in group.measures:
            table.add_row(
                NAMES.get(measure.name, measure.name),
                f"{measure.value:.3f}",
                _between(measure.low, measure.high),
                f"{measure.of:,}",
            )
        yield table
    if metrics.paired:
        table = _table("answers against the other's", "change", "95%", "p", "better", "worse", "of")
        for pair in metrics.paired:
            table.add_row(
                NAMES.get(pair.name, pair.name),
                f"{pair.change:+.3f}",
                _between(pair.low, pair.high, "+"),
                _p(pair.p),
                str(pair.better),
                str(pair.worse),
                f"{pair.of:,}",
            )
        yield table


def _agreements(found: EvaluationResults) -> Table:
    table = _table(
        "right answers, by pairs", "both", "only this", "only the other", "neither", "p (McNemar)"
    )
    for one in found.agreements:
        counts = (one.both, one.only_this, one.only_other, one.neither)
        table.add_row(
            one.measure,
            *map(str, counts),
            _p(one.p),
            style=_colour(one.only_other - one.only_this, one.p),
        )
    return table


def _tasks(found: LmEval) -> Table:
    table = _table("lm-eval task", "metric", "value", "standard error", "rows")
    for task in found.tasks:
        for i, (name, value) in enumerate(task.metrics.items()):
            error = task.errors.get(name)
            table.add_row(
                task.name if not i else "",
                name,
                f"{value:.4f}",
                "" if error is None else f"{error:.4f}",
                f"{task.rows:,}" if not i else "",
            )
    return table


def _of_tasks(found: LmEval | None) -> Iterator[str]:
    if found:
        yield from (f"lm-eval: {name}: {why}" for name, why in found.flags.items())
        if found.compared:
            yield (
                f"lm-eval: the ids of {many(found.compared, 'prompt')} were compared with those"
                " that were trained"
            )
        yield from found.notes


def _said(found: EvaluationResults) -> Iterator[str]:
    left = sorted(found.skipped.items(), key=lambda pair: -pair[1])
    for reason, count in left[:SKIPPED]:
        yield f"{many(count, 'example')} left out: {reason}"
    if len(left) > SKIPPED:
        yield (
            f"{many(sum(count for _, count in left[SKIPPED:]), 'example')} left out for other"
            " reasons"
        )
    if found.rows == 1:
        yield "one row says nothing of others: there are no intervals"
    if found.seen and (loss := found.seen.seen):
        where = f" ({_between(loss.low, loss.high)})" if loss.low is not None else ""
        rows = many(found.seen.rows, "row")
        yield (
            f"{rows} of the training data, apart from the others: {loss.mean:.4f} nats a"
            f" token{where}"
        )


def _named(model: ModelMeasurements) -> str:
    """The last part of a path."""
    return visible(model.name.rstrip("/").rpartition("/")[2] or model.name)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _between(low: float | None, high: float | None, sign: str = "") -> str:
    if low is None or high is None:
        return ""
    figures = ".3f" if sign or max(abs(low), abs(high)) >= 0.01 else ".2g"
    return f"{low:{sign}{figures}} to {high:{sign}{figures}}"


def _short(value: float) -> str:
    return f"{value:,.2f}" if 1 <= value < 1e6 else f"{value:.3g}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _colour(difference: float, p: float) -> str:
    """Green where it is better for sure, red where it is worse."""
    return "" if p >= SURE else "green" if difference < 0 else "red"
