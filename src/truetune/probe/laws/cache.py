"""The key-value cache changes nothing: on, off, and token by token."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.compute_logits import (
    compute_logits,
    logit_difference_allowed_by_rounding,
    logits_of_output,
    unpadded_documents,
)
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.rounding_tolerance import (
    forward_inputs_without_labels,
    relative_difference_allowing_expert_routing,
)

COST: Cost = "quick"
# Tokens that are fed one by one, after the row's others. Chosen, not measured: each is a pass of the real model, and a
# cache that is wrong is wrong at its first use.
STEPPED_TOKENS = 8


def measure_law(trial: Trial) -> Measured:
    """Logits of one real row without the cache, as in training, against one pass with it, and against a pass over the
    beginning and then token by token, as in generation."""
    model = trial.model
    if "use_cache" not in forward_inputs_without_labels({"use_cache": True}, model):
        raise Untested("the model takes no use_cache")
    row = unpadded_documents(trial)[0][None]
    if row.shape[1] <= STEPPED_TOKENS:
        raise Untested(f"no row has more than {STEPPED_TOKENS} tokens")
    inputs = {"input_ids": row, "attention_mask": torch.ones_like(row)}
    off = compute_logits(model, inputs, training=False, use_cache=False)
    on = compute_logits(model, inputs, training=False, use_cache=True)
    stepped = _logits_step_by_step(model, row)
    worst = {
        "one pass": relative_difference_allowing_expert_routing(off, on, model),
        "token by token": relative_difference_allowing_expert_routing(
            off[:, -STEPPED_TOKENS:], stepped, model
        ),
    }
    value = float(torch.tensor(list(worst.values())).max())
    # Rounding makes 2e-7 here, a cache that is shared wrongly 0.52 (docs/laws.md).
    explained = logit_difference_allowed_by_rounding(
        model, inputs, off, training=False, use_cache=False
    )
    return Measured(
        value, explained, "relative difference of logits", {"by way": worst, "tokens": row.shape[1]}
    )


@torch.no_grad()
def _logits_step_by_step(model: Any, row: torch.Tensor) -> torch.Tensor:
    """(1, STEPPED_TOKENS, vocabulary) logits of the last tokens, each fed alone with the cache of those before it."""
    begin = row.shape[1] - STEPPED_TOKENS
    model.eval()
    out = model(
        input_ids=row[:, :begin], attention_mask=torch.ones_like(row[:, :begin]), use_cache=True
    )
    steps = []
    for i in range(begin, row.shape[1]):
        cache = getattr(out, "past_key_values", None)
        if cache is None:
            raise Untested("the model gives no cache back")
        mask = torch.ones_like(row[:, : i + 1])
        out = model(
            input_ids=row[:, i : i + 1], attention_mask=mask, past_key_values=cache, use_cache=True
        )
        steps.append(logits_of_output(out)[:, -1])
    return torch.stack(steps, 1)
