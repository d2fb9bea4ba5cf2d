from __future__ import annotations

import torch

from truetune.render.rendering import Source
from truetune.training.watch.losses_by_source import SourceLosses, losses_from_log_history


def test_means_by_source_and_of_first_tokens() -> None:
    sums = SourceLosses()
    sources = torch.tensor(
        [Source.ASSISTANT, Source.ASSISTANT, Source.STOP, Source.REASONING], dtype=torch.uint8
    )
    sums.add(
        torch.tensor([1.0, 3.0, 7.0, 5.0], requires_grad=True),
        sources,
        torch.tensor([True, False, False, True]),
    )
    sums.add(torch.tensor([9.0]), sources[2:3], torch.tensor([False]))
    expected = {"assistant content": 2.0, "stop token": 8.0, "reasoning": 5.0, "first token": 3.0}
    assert sums.take() == {f"loss/{name}": mean for name, mean in expected.items()}
    assert sums.take() == {}


def test_what_is_no_number_stays_with_its_own() -> None:
    sums = SourceLosses()
    sums.add(
        torch.tensor([1.0, torch.nan]),
        torch.tensor([4, 8], dtype=torch.uint8),
        torch.tensor([True, False]),
    )
    taken = sums.take()
    assert taken["loss/assistant content"] == taken["loss/first token"] == 1.0
    assert taken["loss/stop token"] != taken["loss/stop token"]


def test_cleared_is_nothing() -> None:
    sums = SourceLosses()
    sums.add(torch.tensor([1.0]), torch.tensor([4], dtype=torch.uint8), torch.tensor([True]))
    sums.clear()
    assert sums.take() == {}


def test_losses_of_a_log() -> None:
    by_source = {"step": 10, "loss": 2.0, "loss/stop token": 5.0, "loss/assistant content": 1.5}
    found = losses_from_log_history(
        [by_source, {"step": 10, "eval_loss": 2.0}, {"step": 20, "loss": 1.0}]
    )
    assert [(record.step, dict(record.by_source)) for record in found] == [
        (10, {"stop token": 5.0, "assistant content": 1.5}),
        (20, {"all": 1.0}),
    ]
    assert losses_from_log_history([{"step": 1, "loss": 0.69, "rewards/margins": 0.1}]) == ()


def test_a_restored_state_goes_on() -> None:
    sums, other = SourceLosses(), SourceLosses()
    assert sums.state() is None
    tokens = (
        torch.tensor([1.0, 3.0]),
        torch.tensor([4, 8], dtype=torch.uint8),
        torch.tensor([True, False]),
    )
    sums.add(*tokens)
    other.restore(sums.state())
    sums.add(*tokens)
    other.add(*tokens)
    assert other.take() == sums.take() != {}
