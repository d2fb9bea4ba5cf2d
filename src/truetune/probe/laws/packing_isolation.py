"""The documents of a packed line do not see each other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.compute_logits import MAX_KEPT_POSITIONS, alter_tokens, compute_logits
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.packed_documents import (
    Span,
    document_spans,
    lines_with_ids_of_batches,
)
from truetune.probe.measuring.rounding_tolerance import (
    relative_difference_allowing_expert_routing,
    rounding_tolerance,
)

COST: Cost = "quick"


def measure_law(trial: Trial) -> Measured:
    """Logits of all other documents of a real packed batch, before and after one of them, the first, and then the
    last, is given other tokens; with every key that the collator gives."""
    batch, line, documents, keys_that_separate = _choose_packed_line(trial)
    ids = batch["input_ids"]
    worst = {}
    for name, changed in (("first", documents[0]), ("last", documents[-1])):
        keep = _compared_positions([span for span in documents if span != changed], ids.device)
        other = ids.clone()
        other[line, slice(*changed)] = alter_tokens(ids[line, slice(*changed)], trial)
        before, after = (
            compute_logits(trial.model, batch | {"input_ids": x}, keep=keep)[line]
            for x in (ids, other)
        )
        worst[name] = relative_difference_allowing_expert_routing(before, after, trial.model)
    value = float(torch.tensor(list(worst.values())).max())
    evidence = {
        "by changed document": worst,
        "documents": len(documents),
        "separated by": keys_that_separate,
    }
    # Exactly 0 where documents do not see each other: the same numbers are computed twice.
    return Measured(
        value,
        rounding_tolerance(trial.model),
        "relative difference of logits of other documents",
        evidence,
    )


def _choose_packed_line(trial: Trial) -> tuple[dict[str, Any], int, list[Span], list[str]]:
    """Choose a packed line: its batch, its number, its documents, and the keys that tell them apart."""
    for batch, line in lines_with_ids_of_batches(trial.batches):
        if len(candidates := document_spans(batch, line)) > 1:
            return (
                batch,
                line,
                candidates,
                [key for key in batch if key not in ("input_ids", "labels")],
            )
    for batch, line in lines_with_ids_of_batches(trial.batches):
        if len(candidates := _documents_by_stop_tokens(trial, batch, line)) > 1:
            return batch, line, candidates, []
    raise Untested("no line of the batches holds several documents")


def _documents_by_stop_tokens(trial: Trial, batch: dict[str, Any], line: int) -> list[Span]:
    """Documents of a trainer that packs and gives no key that tells them apart: each ends with a stop token."""
    ids, stop = batch["input_ids"][line], getattr(trial.tokenizer, "eos_token_id", None)
    if stop is None or not getattr(getattr(trial.trainer, "args", None), "packing", False):
        return []
    ends = (torch.nonzero(ids == stop).flatten() + 1).tolist()
    return [
        (begin, end)
        for begin, end in pairwise([0, *(i for i in ends if i < len(ids)), len(ids)])
        if end - begin > 7
    ]


def _compared_positions(documents: list[Span], device: torch.device) -> torch.Tensor:
    """At most KEPT places of these documents, the first ones of each among them."""
    places = torch.cat(
        [
            torch.arange(begin, min(end, begin + max(MAX_KEPT_POSITIONS // len(documents), 1)))
            for begin, end in documents
        ]
    )
    return places.to(device)
