"""A document of a packed line gets the logits that it gets alone."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.compute_logits import (
    MAX_ROW_TOKENS,
    compute_logits,
    logit_difference_allowed_by_rounding,
)
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.packed_documents import (
    Span,
    document_spans,
    lines_with_ids_of_batches,
)
from truetune.probe.measuring.rounding_tolerance import relative_difference_allowing_expert_routing

COST: Cost = "quick"


def measure_law(trial: Trial) -> Measured:
    """Logits of the first document and the last two of a real packed line, in the batch with all its keys, and each
    alone."""
    batch, line, documents = _choose_packed_line(trial)
    numbers = sorted({0, *range(len(documents))[-2:]})
    chosen = [
        (begin, min(end, begin + MAX_ROW_TOKENS)) for begin, end in (documents[i] for i in numbers)
    ]
    ids = batch["input_ids"]
    keep = torch.cat([torch.arange(begin, end) for begin, end in chosen]).to(ids.device)
    together = compute_logits(trial.model, batch, keep=keep)
    pieces = torch.split(together[line], [end - begin for begin, end in chosen])
    worst = {}
    for number, (begin, end), piece in zip(numbers, chosen, pieces, strict=True):
        row = ids[line, begin:end][None]
        alone = compute_logits(
            trial.model, {"input_ids": row, "attention_mask": torch.ones_like(row)}
        )[0]
        worst[f"document {number}"] = relative_difference_allowing_expert_routing(
            alone, piece, trial.model
        )
    value = float(torch.tensor(list(worst.values())).max())
    evidence = {"by document": worst, "documents": len(documents)}
    explained = logit_difference_allowed_by_rounding(trial.model, batch, together, keep=keep)
    return Measured(value, explained, "relative difference of logits", evidence)


def _choose_packed_line(trial: Trial) -> tuple[dict[str, Any], int, list[Span]]:
    """Choose the first packed line: its batch, its number and its documents. Raises Untested."""
    for batch, line in lines_with_ids_of_batches(trial.batches):
        if len(candidates := document_spans(batch, line)) > 1:
            return batch, line, candidates
    raise Untested("no line of the batches holds several documents that the batch tells apart")
