"""What is read from the gradient of a loss at the logits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div

from truetune.probe.measuring.targets_read_from_loss_gradient import AFTER, IGNORED, NEXT, SAME
from truetune.probe.tokens_taught_by_own_loss import (
    labels_taught,
    outcome_of_loss_targets,
    read_taught_tokens,
)

VOCABULARY = 50
IDS = torch.randint(0, VOCABULARY, (3, 20), generator=torch.Generator().manual_seed(0))
LABELS = IDS.masked_fill(torch.arange(20) < 8, IGNORED)


def _gradient(
    loss_of: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    torch.manual_seed(0)
    logits = torch.randn(3, 20, VOCABULARY).to(dtype).requires_grad_()
    loss_of(logits).backward()
    assert logits.grad is not None
    return logits.grad


@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_labels_are_those_of_the_loss(offset: int, smoothing: float, dtype: torch.dtype) -> None:
    def loss(logits: torch.Tensor) -> torch.Tensor:
        kept = logits[:, : 20 - offset].flatten(0, 1)
        return cross_entropy(kept.float(), LABELS[:, offset:].flatten(), label_smoothing=smoothing)

    taught = read_taught_tokens(_gradient(loss, dtype))
    found = labels_taught(IDS, taught)
    assert found is not None
    assert found.target == (SAME, NEXT, AFTER)[offset]
    if offset < 2:
        assert torch.equal(found.labels, LABELS)
    outcome = outcome_of_loss_targets([IDS], [taught], None)
    assert (outcome["value"] > outcome["tolerance"]) == (offset != 1)


def test_a_weight_of_zero_leaves_a_token_out() -> None:
    weights = (torch.arange(19) % 2).float()

    def loss(logits: torch.Tensor) -> torch.Tensor:
        each = cross_entropy(logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten(), reduction="none")
        return (each.view(3, 19) * weights).sum()

    found = labels_taught(IDS, read_taught_tokens(_gradient(loss)))
    assert found is not None
    assert torch.equal(found.labels[:, 1:] != IGNORED, weights.bool().expand(3, -1))


def test_whole_distributions_and_strange_tokens_have_no_labels() -> None:
    teacher = torch.randn(
        3, 20, VOCABULARY, generator=torch.Generator().manual_seed(1)
    ).log_softmax(-1)
    divergence = _gradient(
        lambda logits: kl_div(logits.log_softmax(-1), teacher, log_target=True, reduction="sum")
    )
    assert labels_taught(IDS, read_taught_tokens(divergence)) is None
    others = torch.randint(0, VOCABULARY, (60,), generator=torch.Generator().manual_seed(2))
    strange = _gradient(lambda logits: cross_entropy(logits.flatten(0, 1), others))
    assert labels_taught(IDS, read_taught_tokens(strange)) is None
    assert labels_taught(IDS, read_taught_tokens(torch.zeros(3, 20, VOCABULARY))) is None
