"""The documents of a packed line do not see each other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from truetune.probe.laws import Cost, Measured, Trial, Untested
from truetune.probe.laws.forward import KEPT, altered, logits
from truetune.probe.laws.packs import Span, lines, spans
from truetune.probe.laws.tolerance import routed_difference, tolerance

COST: Cost = "quick"


def measure(trial: Trial) -> Measured:
    """Logits of all other documents of a real packed batch, before and after one of them, the first, and then the
    last, is given other tokens; with every key that the collator gives."""
    batch, line, documents, told = _pack(trial)
    ids = batch["input_ids"]
    worst = {}
    for name, changed in (("first", documents[0]), ("last", documents[-1])):
        keep = _places([span for span in documents if span != changed], ids.device)
        other = ids.clone()
        other[line, slice(*changed)] = altered(ids[line, slice(*changed)], trial)
        before, after = (
            logits(trial.model, batch | {"input_ids": x}, keep=keep)[line] for x in (ids, other)
        )
        worst[name] = routed_difference(before, after, trial.model)
    value = float(torch.tensor(list(worst.values())).max())
    evidence = {"by changed document": worst, "documents": len(documents), "told apart by": told}
    return Measured(
        value, tolerance(trial.model), "relative difference of logits of other documents", evidence
    )


def _pack(trial: Trial) -> tuple[dict[str, Any], int, list[Span], list[str]]:
    """The batch, line, documents, and the keys that tell them apart."""
    for batch, line in lines(trial.batches):
        if len(found := spans(batch, line)) > 1:
            return batch, line, found, [key for key in batch if key not in ("input_ids", "labels")]
    for batch, line in lines(trial.batches):
        if len(found := _by_stop_tokens(trial, batch, line)) > 1:
            return batch, line, found, []
    raise Untested("no line of the batches holds several documents")


def _by_stop_tokens(trial: Trial, batch: dict[str, Any], line: int) -> list[Span]:
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


def _places(documents: list[Span], device: torch.device) -> torch.Tensor:
    """At most KEPT places of these documents, the first ones of each among them."""
    places = torch.cat(
        [
            torch.arange(begin, min(end, begin + max(KEPT // len(documents), 1)))
            for begin, end in documents
        ]
    )
    return places.to(device)
