"""Reads log records that were pasted as a question (`{'loss': 0.0, 'grad_norm': nan, ...}`), and
tells which causes their values prove.

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


def list_proofs_of_records(question: str) -> list[Proof]:
    """What the records pasted in a question prove, the most telling first; nothing if none was
    pasted.
    """
    records = _read_records(question)
    return list(_list_proofs(records)) if records else []


def causes_excluded_by_records(question: str) -> tuple[Cause, ...]:
    """The causes that the values of pasted records exclude, whatever their names suggest."""
    log_probabilities = [
        value
        for record in _read_records(question)
        for name, value in record.items()
        if name.startswith("logps/")
    ]
    # One sum that is not 0 has summands: some token of the answers is in the loss.
    return (NO_ANSWER_TOKEN,) if any(log_probabilities) else ()


def _read_records(question: str) -> list[dict[str, float]]:
    """The records of a training in a text."""
    # Readers of logs know records as Python prints them; JSON differs in its quotes.
    texts = [match[0].replace('"', "'") for match in RECORD.finditer(question)]
    if not texts:
        return []
    # Readers of logs import numpy, which a search in words must not wait for.
    from truetune.logs.parse_printed_records import parse_printed_record

    records = []
    for text in texts:
        record = parse_printed_record(text)
        numbers = _numbers_of_record(record) if record is not None else {}
        if _is_training_record(numbers):
            records.append(numbers)
    return records


def _numbers_of_record(record: Mapping[str, object]) -> dict[str, float]:
    """The metrics of a record; newer trainers print them as texts."""
    from truetune.logs.run_log_builder import parse_logged_number

    values = {name: parse_logged_number(value) for name, value in record.items()}
    return {name: value for name, value in values.items() if value is not None}


def _is_training_record(record: Mapping[str, float]) -> bool:
    """Does a record hold metrics of a training, unlike any other dict that was pasted?"""
    return len(record) >= MIN_METRICS and not MIN_LOG_KEYS.isdisjoint(record)


def _list_proofs(records: Sequence[Mapping[str, float]]) -> Iterator[Proof]:
    """What the values of records prove, the surest alone where it explains the others."""
    losses = _values_of_keys(records, "loss", "train_loss", "train/loss")
    chosen = _values_of_keys(records, "logps/chosen")
    rejected = _values_of_keys(records, "logps/rejected")
    if _are_all_zero(chosen) and _are_all_zero(rejected):
        yield Proof("dpo-without-effect", NO_ANSWER_TOKEN)
    elif not all(map(math.isfinite, losses)):
        text = "the loss of a record is not a number: look at the steps before it, the rate and the dtype"
        yield Proof("loss-not-finite", Cause(text, ""))
    elif not any(name in record for record in records for name in OTHER_LOSSES):
        yield from _list_proofs_of_gradients(
            losses, _values_of_keys(records, "grad_norm", "train/grad_norm")
        )


def _list_proofs_of_gradients(losses: list[float], norms: list[float]) -> Iterator[Proof]:
    """What losses and gradient norms prove together, where the losses are numbers."""
    are_norms_nan = bool(norms) and not any(map(math.isfinite, norms))
    are_norms_zero = _are_all_zero(norms)
    # A healthy step has a norm that is a number above 0, whatever its loss is.
    if _are_all_zero(losses) and (not norms or are_norms_nan or are_norms_zero):
        text = (
            "a loss of exactly 0 is a NaN that the Trainer's filter hides, or a batch without a supervised token:"
            " logging_nan_inf_filter=False shows which"
        )
        yield Proof("loss-or-gradient-exactly-zero", Cause(text, ""))
    elif are_norms_zero and losses and not _are_all_zero(losses):
        text = "the loss is not 0 and the gradient norm is exactly 0: no parameter is trained"
        yield Proof("grad-norm-zero", Cause(text, ""))
    elif are_norms_nan:
        text = (
            "the gradient norm is not a number while the loss is one: the backward pass overflows"
        )
        yield Proof("loss-not-finite", Cause(text, ""))


def _values_of_keys(records: Sequence[Mapping[str, float]], *names: str) -> list[float]:
    """The values of these keys in all records: trainers name one metric differently."""
    return [record[name] for record in records for name in names if name in record]


def _are_all_zero(values: Sequence[float]) -> bool:
    """Are there values, and all exactly 0?"""
    return bool(values) and not any(values)
