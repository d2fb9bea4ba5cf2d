"""Memorising ends where nothing more can be gained, and packs are taken apart before."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from truetune.probe.memorise_batch import (
    MAX_STEPS,
    MIN_STEPS_BEFORE_FLAT,
    MemoriseOutcome,
    collect_first_documents,
    memorise_batch,
)

BATCH = {"x": torch.ones(2, 4)}


def mean_square(model: torch.nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    outputs: torch.Tensor = model(batch["x"])
    return outputs.square().mean()


def constant(model: torch.nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    return 3.0 + 0.0 * mean_square(model, batch)


def not_a_number(model: torch.nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    return mean_square(model, batch) * float("nan")


def without_gradient(model: torch.nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    return torch.tensor(1.0)


def small(model: torch.nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    return 1e-3 * mean_square(model, batch)


@pytest.mark.parametrize(
    ("loss", "options", "steps"),
    [
        (mean_square, {"steps": 5}, 5),
        (mean_square, {"until": 0.0}, 1),
        (not_a_number, {}, 1),
        (without_gradient, {}, 1),
        # A loss that never falls takes all steps: `loss-does-not-fall` needs 60 of them.
        (constant, {}, MAX_STEPS),
        # At a low loss the answers are asked for at each tenth step.
        (small, {}, 10),
        (small, {"known": lambda: False, "steps": 25}, 25),
    ],
)
def test_when_it_ends(loss: Any, options: dict[str, Any], steps: int) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    outcome = memorise_batch(model, loss, BATCH, **options)
    assert len(outcome.losses) == steps
    assert not model.training


def test_it_ends_where_a_fallen_loss_is_flat() -> None:
    values = iter([8.0] + [0.5] * MAX_STEPS)

    def flat(model: torch.nn.Module, batch: dict[str, Any]) -> torch.Tensor:
        return next(values) + 0.0 * mean_square(model, batch)

    outcome = memorise_batch(torch.nn.Linear(4, 4), flat, BATCH)
    assert len(outcome.losses) == MIN_STEPS_BEFORE_FLAT + 1


def test_only_the_given_weights_are_trained() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    weight = model.weight.detach().clone()
    memorise_batch(model, mean_square, BATCH, 3, weights=[model.bias])
    assert torch.equal(model.weight, weight)


@pytest.mark.parametrize(
    ("losses", "fell"),
    [
        ([], False),
        ([8.0, 0.7], True),
        ([8.0, 0.9], False),
        ([0.4, 0.045], True),
        # Nothing to learn from the start, and no number at the end.
        ([0.01, 0.001], False),
        ([8.0, float("nan")], False),
    ],
)
def test_did_the_loss_fall(losses: list[float], fell: bool) -> None:
    assert MemoriseOutcome(losses, 1.0).did_loss_fall is fell


def test_the_documents_of_a_pack_are_taken_apart() -> None:
    pack = {"input_ids": [5, 6, 7, 8, 9], "seq_lengths": [2, 3], "name": "all"}

    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        assert rows[0]["name"] == "all"
        return {"input_ids": torch.tensor([rows[0]["input_ids"]])}

    examples = collect_first_documents([pack], collate)
    assert [example.ids for example in examples] == [[5, 6], [7, 8, 9]]
    assert [example.row["seq_lengths"] for example in examples] == [[2], [3]]
