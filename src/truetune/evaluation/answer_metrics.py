"""Metrics: how near answers are to their references, apart for rows that were trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from truetune.evaluation.row_statistics import bootstrap, mcnemar, paired, wilson
from truetune.generation.answer_samples import Sample

SHARES: dict[str, Callable[[Sample], bool | None]] = {
    "stopped": lambda sample: sample.scores.stopped,
    "exact": lambda sample: sample.scores.exact,
    "parsed": lambda sample: sample.scores.parsed,
    "agrees": lambda sample: sample.scores.agrees,
}
"""Yes or no; None where it does not apply"""


@dataclass(frozen=True, slots=True)
class Measure:
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
class Group:
    """Some rows: `held out`, `trained on`, `all` where it is not known which were trained on; the name of a file, where
    there are several; or `mean of files`, in which each counts the same."""

    name: str
    samples: int
    measures: tuple[Measure, ...]

    def measure(self, name: str) -> Measure | None:
        return next((measure for measure in self.measures if measure.name == name), None)


@dataclass(frozen=True, slots=True)
class Paired:
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
class Metrics:
    """The answers of one model, measured."""

    groups: tuple[Group, ...]
    paired: tuple[Paired, ...] = ()
    """Against the other model, on the first group"""


def measured(
    samples: Sequence[Sample], *, others: Sequence[Sample] = (), seen_known: bool = True
) -> Metrics:
    """The metrics of samples that are scored already (with the parser where one is named).

    `others` are another model's answers to the same rows. `seen_known`: False where it is not known which rows were
    trained on (`leaks.seen_rows` gave a str). The first group is that of held-out rows where there are some.
    """
    parts = {
        "held out": [sample for sample in samples if not sample.prompt.seen],
        "trained on": [sample for sample in samples if sample.prompt.seen],
    }
    if not seen_known:
        parts = {"all": list(samples)}
    parts = {name: part for name, part in parts.items() if part}
    first = next(iter(parts.values()), [])
    groups = [Group(name, len(part), tuple(_measures(part))) for name, part in parts.items()]
    return Metrics((*groups, *_by_file(first)), tuple(_against(first, others)))


def _measures(samples: Sequence[Sample]) -> Iterator[Measure]:
    for name, of in SHARES.items():
        told = [found for sample in samples if (found := of(sample)) is not None]
        if told:
            yield Measure(name, sum(told) / len(told), *wilson(sum(told), len(told)), len(told))
    if overlaps := [overlap for sample in samples if (overlap := _overlap(sample)) is not None]:
        yield Measure("overlap", *bootstrap(overlaps), len(overlaps))
    lengths = [
        (len(s.answer.ids) + (s.answer.stop is not None), len(s.prompt.reference_ids))
        for s in samples
    ]
    if known := [pair for pair in lengths if pair[1]]:
        yield Measure("length ratio", *bootstrap(*zip(*known, strict=True)), len(known))


def _by_file(samples: Sequence[Sample]) -> Iterator[Group]:
    """Each file, and the mean of them, where there are several."""
    files = list(dict.fromkeys(sample.prompt.file for sample in samples))
    if len(files) < 2:
        return
    parts = ([sample for sample in samples if sample.prompt.file == file] for file in files)
    groups = [
        Group(file, len(part), tuple(_measures(part)))
        for file, part in zip(files, parts, strict=True)
    ]
    yield from groups
    names = [measure.name for measure in groups[0].measures]
    rows = [(name, [group.measure(name) for group in groups]) for name in names]
    whole = [(name, [found for found in row if found]) for name, row in rows if all(row)]
    means = (
        Measure(name, mean(m.value for m in row), None, None, sum(m.of for m in row))
        for name, row in whole
    )
    yield Group("mean of files", len(samples), tuple(means))


def _row(sample: Sample) -> tuple[str, int, int]:
    return sample.prompt.file, sample.prompt.line, sample.prompt.row


def _against(samples: Sequence[Sample], others: Sequence[Sample]) -> Iterator[Paired]:
    """What both models were measured on."""
    theirs = {_row(other): other for other in others}
    both = [(mine, theirs[row]) for mine in samples if (row := _row(mine)) in theirs]
    measures: dict[str, Callable[[Sample], float | None]] = {**SHARES, "overlap": _overlap}
    for name, of in measures.items():
        told = [
            (float(a), float(b))
            for mine, other in both
            if (a := of(mine)) is not None and (b := of(other)) is not None
        ]
        if not told:
            continue
        better, worse = sum(a > b for a, b in told), sum(a < b for a, b in told)
        change = paired(*zip(*told, strict=True))
        p = mcnemar(better, worse) if name in SHARES else change.p
        yield Paired(name, change.difference, change.low, change.high, p, len(told), better, worse)


def _overlap(sample: Sample) -> float | None:
    return sample.scores.overlap
