"""Averages how near the answers of a model are to their references, apart for rows that were trained on.

Samples are scored already; here they are averaged by group, each mean with a 95 % interval over rows, and compared
with another model's answers to the same rows. The trade-off: no single figure is given, for none of them alone says
whether answers are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TypeVar

from truetune.evaluation.confidence_intervals_over_rows import (
    bootstrap_mean,
    mcnemar_p,
    paired_difference,
    wilson_interval,
)
from truetune.generation.answer_samples import Sample

Value = TypeVar("Value", bool, float)
SHARE_METRICS: dict[str, Callable[[Sample], bool | None]] = {
    "stopped": lambda sample: sample.scores.stopped,
    "exact": lambda sample: sample.scores.exact,
    "parsed": lambda sample: sample.scores.parsed,
    "agrees": lambda sample: sample.scores.agrees,
}
"""Yes or no; None where it does not apply"""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric over some answers."""

    name: str
    """stopped (by itself), exact, overlap (token F1), parsed (the parser reads it), agrees (and reads what it reads of
    the reference), length ratio (tokens, over the references')"""
    value: float
    low: float | None
    high: float | None
    """95 %: Wilson for shares, bootstrap over rows for the others; None of one row, and of means over files"""
    of: int
    """Answers that it is measured on"""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Some rows: `held out`, `trained on`, `all` where it is not known which were trained on; the name of a file, where
    there are several; or `mean of files`, in which each counts the same."""

    name: str
    samples: int
    measures: tuple[Metric, ...]

    def metric_by_name(self, name: str) -> Metric | None:
        """The metric of that name; None where it applies to none of the rows."""
        return next((measure for measure in self.measures if measure.name == name), None)


@dataclass(frozen=True, slots=True)
class PairedMetric:
    """One metric less that of another model, over the same prompts."""

    name: str
    change: float
    low: float | None
    high: float | None
    p: float
    """Two-sided: McNemar's exact test for shares, a sign-flip test for the overlap"""
    of: int
    better: int
    """Prompts that only this model gets right, or that it is nearer to"""
    worse: int


@dataclass(frozen=True, slots=True)
class AnswerMetrics:
    """The answers of one model, measured."""

    groups: tuple[RowGroup, ...]
    paired: tuple[PairedMetric, ...] = ()
    """Against the other model, on the first group"""


def measure_answers(
    samples: Sequence[Sample], *, others: Sequence[Sample] = (), seen_known: bool = True
) -> AnswerMetrics:
    """The metrics of samples that are scored already (with the parser where one is named).

    Args:
        samples: the answers of the model.
        others: another model's answers to the same rows.
        seen_known: False where it is not known which rows were trained on.

    Returns:
        Groups, the first of which is that of held-out rows where there are some.
    """
    parts = {
        "held out": [sample for sample in samples if not sample.prompt.seen],
        "trained on": [sample for sample in samples if sample.prompt.seen],
    }
    # Unknown is not held out: such rows are called neither.
    if not seen_known:
        parts = {"all": list(samples)}
    parts = {name: part for name, part in parts.items() if part}
    first = next(iter(parts.values()), [])
    groups = [
        RowGroup(name, len(part), tuple(_measure_group(part))) for name, part in parts.items()
    ]
    return AnswerMetrics(
        (*groups, *_group_by_file(first)), paired=tuple(_compare_models(first, others))
    )


def _measure_group(samples: Sequence[Sample]) -> Iterator[Metric]:
    """Each metric that applies to some of the samples, with its interval."""
    for name, is_so in SHARE_METRICS.items():
        known = _known_values(is_so, samples)
        if known:
            low, high = wilson_interval(sum(known), len(known))
            yield Metric(name, sum(known) / len(known), low, high, len(known))
    overlaps = _known_values(_token_f1_with_reference, samples)
    if overlaps:
        yield Metric("overlap", *bootstrap_mean(overlaps), len(overlaps))
    with_reference = [sample for sample in samples if sample.prompt.reference_ids]
    if with_reference:
        references = [len(sample.prompt.reference_ids) for sample in with_reference]
        # References end with their stop token, so that of the answer counts as well.
        answers = [
            len(sample.answer.ids) + (sample.answer.stop is not None) for sample in with_reference
        ]
        # All tokens over all tokens, not the mean of ratios: one reference of a word would decide that.
        yield Metric("length ratio", *bootstrap_mean(answers, references), len(with_reference))


def _known_values(
    measure: Callable[[Sample], Value | None], samples: Sequence[Sample]
) -> list[Value]:
    """What a measure gives, of the samples that it applies to."""
    values = (measure(sample) for sample in samples)
    return [value for value in values if value is not None]


def _group_by_file(samples: Sequence[Sample]) -> Iterator[RowGroup]:
    """Each file, and the mean of them, where there are several."""
    by_file: dict[str, list[Sample]] = {}
    for sample in samples:
        by_file.setdefault(sample.prompt.file, []).append(sample)
    if len(by_file) < 2:
        return
    groups = [
        RowGroup(file, len(part), tuple(_measure_group(part))) for file, part in by_file.items()
    ]
    yield from groups
    means = []
    for name in [metric.name for metric in groups[0].measures]:
        of_files = [group.metric_by_name(name) for group in groups]
        measured = [metric for metric in of_files if metric]
        # A mean over some of the files would be compared with means over all of them.
        if len(measured) == len(groups):
            value = mean(metric.value for metric in measured)
            means.append(Metric(name, value, None, None, sum(metric.of for metric in measured)))
    yield RowGroup("mean of files", len(samples), tuple(means))


def _row_key(sample: Sample) -> tuple[str, int, int]:
    """What the answers of two models to one row have in common: not the ids, for tokenizers may differ."""
    return sample.prompt.file, sample.prompt.line, sample.prompt.row


def _compare_models(samples: Sequence[Sample], others: Sequence[Sample]) -> Iterator[PairedMetric]:
    """What both models were measured on, prompt by prompt."""
    other_by_row = {_row_key(other): other for other in others}
    both = [
        (sample, other_by_row[_row_key(sample)])
        for sample in samples
        if _row_key(sample) in other_by_row
    ]
    measures: dict[str, Callable[[Sample], float | None]] = {
        **SHARE_METRICS,
        "overlap": _token_f1_with_reference,
    }
    for name, measure in measures.items():
        pairs = [(measure(sample), measure(other)) for sample, other in both]
        known = [(float(a), float(b)) for a, b in pairs if a is not None and b is not None]
        if known:
            yield _compare_metric_of_models(name, known)


def _compare_metric_of_models(name: str, pairs: Sequence[tuple[float, float]]) -> PairedMetric:
    """One metric of both models, prompt by prompt."""
    better, worse = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    change = paired_difference(*zip(*pairs, strict=True))
    # The exact test where there is one; the signs of a share flip only in a few rows.
    p = mcnemar_p(better, worse) if name in SHARE_METRICS else change.p
    return PairedMetric(
        name, change.difference, change.low, change.high, p, len(pairs), better, worse
    )


def _token_f1_with_reference(sample: Sample) -> float | None:
    """The token F1 of an answer with its reference; None without a reference."""
    return sample.scores.overlap
