"""What a record of a log says that was pasted as a question: `{'loss': 0.0, 'grad_norm': nan, ...}`.

One or a few records have no curve, so that rules on logs have too little of them. Some values need none: a sum of
log-probabilities that is exactly 0, a loss that is no number. What they prove goes before what the words are about.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from truetune.checks.explaining.guides import NO_ANSWER_TOKEN, Cause

RECORD = re.compile(r"\{[^{}]{3,4000}\}")
MIN_METRICS = 2
"""Numbers that a record has at least; with one it is any dict"""
MIN_LOG_KEYS = frozenset(("loss", "train_loss", "train/loss", "grad_norm", "logps/chosen"))
"""One of these is in each record of training"""
OTHER_LOSSES = (
    "reward",
    "kl",
    "rewards/margins",
    "rewards/chosen",
    "clip_ratio",
    "completions/mean_length",
)
"""Keys of runs whose loss may be 0 while they learn, or that have a guide of their own"""


@dataclass(frozen=True, slots=True)
class Proof:
    """A topic that the values of a record prove, and what it says of them."""

    topic: str
    cause: Cause


def proofs_of_records(question: str) -> list[Proof]:
    """What the records in a question prove, what tells most first; nothing where none was pasted."""
    records = _records(question)
    return list(_proofs(records)) if records else []


def excluded_by_records(question: str) -> tuple[Cause, ...]:
    """The causes that the values of pasted records exclude, whatever their names suggest."""
    sums = [
        value
        for record in _records(question)
        for name, value in record.items()
        if name.startswith("logps/")
    ]
    return (NO_ANSWER_TOKEN,) if any(sums) else ()


def _records(question: str) -> list[dict[str, float]]:
    """The records of a training in a text."""
    texts = [match[0].replace('"', "'") for match in RECORD.finditer(question)]
    if not texts:
        return []
    # Readers of logs import numpy, which a search in words must not wait for.
    from truetune.logs.printed import printed_record

    found = map(printed_record, texts)
    records = [_numbers(record) for record in found if record is not None]
    return [record for record in records if _is_record(record)]


def _numbers(record: Mapping[str, object]) -> dict[str, float]:
    """The metrics of a record; newer trainers print them as texts."""
    from truetune.logs.builder import number

    values = {name: number(value) for name, value in record.items()}
    return {name: value for name, value in values.items() if value is not None}


def _is_record(record: Mapping[str, float]) -> bool:
    return len(record) >= MIN_METRICS and not MIN_LOG_KEYS.isdisjoint(record)


def _proofs(records: Sequence[Mapping[str, float]]) -> Iterator[Proof]:
    losses = _values(records, "loss", "train_loss", "train/loss")
    norms = _values(records, "grad_norm", "train/grad_norm")
    chosen, rejected = _values(records, "logps/chosen"), _values(records, "logps/rejected")
    if _all_zero(chosen) and _all_zero(rejected):
        yield Proof("dpo-without-effect", NO_ANSWER_TOKEN)
        return
    if not all(map(math.isfinite, losses)):
        text = (
            "the loss of a record is no number: look at the steps before it, the rate and the dtype"
        )
        yield Proof("loss-not-finite", Cause(text, ""))
        return
    if any(name in record for record in records for name in OTHER_LOSSES):
        return
    is_dead = bool(norms) and not any(map(math.isfinite, norms))
    if _all_zero(losses) and (is_dead or not norms or _all_zero(norms)):
        text = (
            "a loss of exactly 0 is a NaN that the Trainer's filter hides, or a batch without a supervised token:"
            " logging_nan_inf_filter=False shows which"
        )
        yield Proof("nan-hidden-by-logging-filter", Cause(text, ""))
    elif _all_zero(norms) and losses and not _all_zero(losses):
        text = "the loss is not 0 and the gradient norm is exactly 0: no parameter is trained"
        yield Proof("grad-norm-zero", Cause(text, ""))
    elif is_dead:
        text = "the gradient norm is no number while the loss is one: the backward pass overflows"
        yield Proof("loss-not-finite", Cause(text, ""))


def _values(records: Sequence[Mapping[str, float]], *names: str) -> list[float]:
    return [record[name] for record in records for name in names if name in record]


def _all_zero(values: Sequence[float]) -> bool:
    return bool(values) and not any(values)
