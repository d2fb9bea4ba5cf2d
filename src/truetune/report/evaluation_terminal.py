"""What was measured on held-out rows, on a terminal: losses, P(stop), answers, tasks, each with its interval.

One table for each way of measuring. Every figure that is an estimate stands beside its interval or its p, and
colour is given to a difference only where chance is unlikely: without it readers take the larger of two means for
the better model. The trade-off: many columns, so a narrow terminal folds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from truetune.evaluation.average_answer_metrics import AnswerMetrics
from truetune.evaluation.evaluation_report import EvaluationReport
from truetune.generation.evaluation_loss_and_score_types import (
    ALL_TOKENS,
    EvaluationResults,
    ModelMeasurements,
    StopCalibration,
)
from truetune.report.draw_what_each_kind_of_report_adds import draw_details_by_kind
from truetune.report.terminal_output import borderless_table, print_visible
from truetune.report.visible_text import (
    count_noun,
    escape_invisible_characters,
    format_per_cent_share,
)

if TYPE_CHECKING:
    from truetune.evaluation.run_lm_eval_and_compare_prompts import LmEvalResult

SIGNIFICANCE_LEVEL = 0.05
"""Differences of a smaller p have a colour. The usual level, not measured: at 0.1 one comparison of equal models in ten
has a colour, at 0.025 a real difference needs more rows to get one."""
# Chosen, not measured: a few reasons say what is wrong with the rows; a line for each of fifty
# would push the losses off the screen.
MAX_SKIP_REASONS = 5
"""Reasons that are shown"""
METRIC_NAMES = {"overlap": "overlap (token F1)", "length ratio": "length over the reference's"}


@draw_details_by_kind.register
def draw_evaluation(report: EvaluationReport, console: Console, verbose: bool) -> None:
    """Draw losses, stops, answers and tasks; against the other model where there is one."""
    evaluated = report.evaluated
    notes: list[str] = []
    tables: list[Table] = []
    if evaluated:
        tables += _likelihood_tables(evaluated, f"{report.confidence:.0%}", verbose)
        notes += _evaluation_notes(evaluated)
    if report.metrics:
        tables += _answer_tables(report.metrics)
    if evaluated and evaluated.agreements:
        tables.append(_only_one_right_table(evaluated))
    if report.tasks:
        tables.append(_task_table(report.tasks))
    for table in tables:
        console.print(table)
        console.print()
    for line in (*notes, *report.notes, *_task_notes(report.tasks)):
        print_visible(console, f"note: {line}", "dim")


def _likelihood_tables(evaluated: EvaluationResults, level: str, verbose: bool) -> Iterator[Table]:
    """Tables of what is read off the probabilities of the reference answers, without generating:
    losses, stops, calibration.
    """
    if evaluated.model.losses:
        yield _loss_table(evaluated, level)
    if evaluated.changes and evaluated.other:
        yield _loss_change_table(evaluated, evaluated.other, level)
    if evaluated.model.stops:
        yield _stop_probability_table(evaluated, level)
        if verbose:
            yield _stop_calibration_table(evaluated.model.stops)


def _loss_table(evaluated: EvaluationResults, level: str) -> Table:
    """A table of the loss by source of the tokens; the whole in bold."""
    table = _new_number_table("loss by source", "tokens", "nats/token", level, "perplexity")
    for loss in evaluated.model.losses:
        table.add_row(
            loss.source,
            f"{loss.tokens:,}",
            f"{loss.mean:.4f}",
            _format_interval(loss.low, loss.high),
            _format_number(loss.perplexity),
            style="bold" if loss.source == ALL_TOKENS else "",
        )
    return table


def _loss_change_table(evaluated: EvaluationResults, other: ModelMeasurements, level: str) -> Table:
    """A table of the difference from the other model's loss by source, with p."""
    table = _new_number_table(
        f"against {_short_model_name(other)}", "its loss", "difference", level, "p"
    )
    for change in evaluated.changes:
        other_loss = other.mean_loss_of_token_kind(change.source)
        table.add_row(
            change.source,
            f"{other_loss.mean:.4f}" if other_loss else "",
            f"{change.difference:+.4f}",
            _format_interval(change.low, change.high, "+"),
            _format_p_value(change.p),
            style=_loss_change_style(change.difference, change.p),
        )
    return table


def _stop_probability_table(evaluated: EvaluationResults, level: str) -> Table:
    """A table of how likely the model stops at and inside answers, one column a model."""
    models = [model for model in (evaluated.model, evaluated.other) if model and model.stops]
    table = _new_number_table("P(stop)", *map(_short_model_name, models))
    # The lines of both models are made by the same function, so that they can be zipped into
    # one table; a model that was not asked for its stops has no column.
    for name, *cells in zip(
        *(_stop_lines(model.stops, level) for model in models if model.stops), strict=True
    ):
        table.add_row(name[0], *(cell[1] for cell in (name, *cells)))
    return table


def _stop_lines(stops: StopCalibration, level: str) -> Iterator[tuple[str, str]]:
    """(name, value) of how likely the model stops where answers end, and inside of them."""
    yield "where answers end, mean", _format_number(stops.mean)
    yield "  median", _format_number(stops.median)
    yield (
        "  over 1/2",
        f"{stops.likely:,} of {stops.ends:,} ({format_per_cent_share(stops.likely, stops.ends)})",
    )
    yield "inside answers, mean", _format_number(stops.inside_mean)
    yield "  largest", _format_number(stops.largest)
    yield "  over 1/2", f"{stops.false:,} of {stops.inside:,}"
    yield (
        f"expected/actual stops ({level})",
        f"{_format_number(stops.expected)} ({_format_interval(stops.low, stops.high)})",
    )
    yield "expected calibration error", _format_number(stops.error)


def _stop_calibration_table(stops: StopCalibration) -> Table:
    """A table of P(stop) in bins: how many of the places in each bin are ends of answers."""
    table = _new_number_table("P(stop) from", "to", "places", "mean", "of them ends")
    for part in stops.bins:
        table.add_row(
            f"{part.low:.1f}",
            f"{part.high:.1f}",
            f"{part.places:,}",
            f"{part.mean:.4f}",
            # In a calibrated model this share equals the mean beside it.
            f"{part.ends:,} ({part.ends / part.places:.4f})",
        )
    return table


def _answer_tables(metrics: AnswerMetrics) -> Iterator[Table]:
    """A table for each group of generated answers, and one of the differences from the other model's."""
    for group in metrics.groups:
        table = _new_number_table(f"answers, rows {group.name} ({group.samples})", "", "95%", "of")
        for measure in group.measures:
            table.add_row(
                METRIC_NAMES.get(measure.name, measure.name),
                f"{measure.value:.3f}",
                _format_interval(measure.low, measure.high),
                f"{measure.of:,}",
            )
        yield table
    if metrics.paired:
        table = _new_number_table(
            "answers against the other's", "change", "95%", "p", "better", "worse", "of"
        )
        for pair in metrics.paired:
            table.add_row(
                METRIC_NAMES.get(pair.name, pair.name),
                f"{pair.change:+.3f}",
                _format_interval(pair.low, pair.high, "+"),
                _format_p_value(pair.p),
                str(pair.better),
                str(pair.worse),
                f"{pair.of:,}",
            )
        yield table


def _only_one_right_table(evaluated: EvaluationResults) -> Table:
    """A table of on how many rows only one of the two models is right, with McNemar's p."""
    table = _new_number_table(
        "right answers, by pairs", "both", "only this", "only the other", "neither", "p (McNemar)"
    )
    for one in evaluated.agreements:
        counts = (one.both, one.only_this, one.only_other, one.neither)
        table.add_row(
            one.measure,
            *map(str, counts),
            _format_p_value(one.p),
            style=_loss_change_style(one.only_other - one.only_this, one.p),
        )
    return table


def _task_table(lm_eval: LmEvalResult) -> Table:
    """A line for each metric of each lm-eval task."""
    table = _new_number_table("lm-eval task", "metric", "value", "standard error", "rows")
    for task in lm_eval.tasks:
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


def _task_notes(lm_eval: LmEvalResult | None) -> Iterator[str]:
    """Notes on the lm-eval tasks: options that differ from the usual ones, and what was compared."""
    if lm_eval:
        yield from (f"lm-eval: {name}: {why}" for name, why in lm_eval.flags.items())
        if lm_eval.compared:
            yield (
                f"lm-eval: the ids of {count_noun(lm_eval.compared, 'prompt')} were compared with those"
                " that were trained"
            )
        yield from lm_eval.notes


def _evaluation_notes(evaluated: EvaluationResults) -> Iterator[str]:
    """What was left out and why, what can't be said, and the loss on rows that were trained on."""
    left = sorted(evaluated.skipped.items(), key=lambda pair: -pair[1])
    for reason, count in left[:MAX_SKIP_REASONS]:
        yield f"{count_noun(count, 'example')} left out: {reason}"
    if len(left) > MAX_SKIP_REASONS:
        yield (
            f"{count_noun(sum(count for _, count in left[MAX_SKIP_REASONS:]), 'example')} left out for other"
            " reasons"
        )
    # An interval comes from how rows differ, so it needs two at least: tokens of one
    # row are no independent draws.
    if evaluated.rows == 1:
        yield "one row says nothing of others: there are no intervals"
    # Rows that were trained on are memorised: they are measured apart, or the loss would look
    # better than it is.
    loss = evaluated.seen.seen if evaluated.seen else None
    if evaluated.seen and loss:
        where = f" ({_format_interval(loss.low, loss.high)})" if loss.low is not None else ""
        rows = count_noun(evaluated.seen.rows, "row")
        yield (
            f"{rows} of the training data, apart from the others: {loss.mean:.4f} nats/token{where}"
        )


def _short_model_name(model: ModelMeasurements) -> str:
    """The last part of a model's path."""
    return escape_invisible_characters(model.name.rstrip("/").rpartition("/")[2] or model.name)


def _new_number_table(first: str, *others: str) -> Table:
    """An empty table of a first column and columns of numbers."""
    table = borderless_table()
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _format_interval(low: float | None, high: float | None, sign: str = "") -> str:
    """A confidence interval, `1.000 to 1.500`; empty where there is none."""
    if low is None or high is None:
        return ""
    # Two digits that count, of values so small that three decimals would show 0.000.
    figures = ".3f" if sign or max(abs(low), abs(high)) >= 0.01 else ".2g"
    return f"{low:{sign}{figures}} to {high:{sign}{figures}}"


def _format_number(value: float) -> str:
    """A number with two decimals of usual sizes, and with three digits of others."""
    return f"{value:,.2f}" if 1 <= value < 1e6 else f"{value:.3g}"


def _format_p_value(value: float) -> str:
    """A p-value with three decimals, or `< 0.001`."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _loss_change_style(difference: float, p: float) -> str:
    """The colour of a change: green where it is significantly better, red where it is significantly
    worse.
    """
    return "" if p >= SIGNIFICANCE_LEVEL else "green" if difference < 0 else "red"
