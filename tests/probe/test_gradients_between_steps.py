"""What becomes of gradients between two steps: loops that clear them, and loops that use all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from truetune.probe.detect_gradients_cleared_before_step import GradientsBetweenSteps

PASSES, STEPS = 4, 3
Loop = Callable[["Watched"], None]


class Watched:
    """A model with an optimizer that is watched, and its inputs."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.between = GradientsBetweenSteps()
        self.between.watch(self.optimizer, lambda weight, note: weight.register_hook(note))

    def loss(self) -> Any:
        """The loss of one forward pass on new inputs."""
        self.between.note_forward()
        return self.model(torch.randn(5, 8)).square().mean()

    def step(self) -> None:
        """A step of the optimizer."""
        self.between.note_step()
        self.optimizer.step()


def cleared_before_each_pass(loop: Watched) -> None:
    for _ in range(PASSES):
        loop.optimizer.zero_grad()
        loop.loss().backward()
    loop.step()


def set_to_zero(loop: Watched) -> None:
    for _ in range(PASSES):
        loss = loop.loss()
        loop.model.zero_grad(set_to_none=False)
        loss.backward()
    nn.utils.clip_grad_norm_(loop.model.parameters(), 0.01)
    loop.step()


def weight_by_weight(loop: Watched) -> None:
    for number in range(PASSES):
        loop.loss().backward()
        for weight in loop.model.parameters() if number < PASSES - 1 else ():
            weight.grad = None
    loop.step()
    loop.optimizer.zero_grad()


def accumulated(loop: Watched) -> None:
    loop.optimizer.zero_grad()
    for _ in range(PASSES):
        (loop.loss() / PASSES).backward()
    loop.step()


def one_pass(loop: Watched) -> None:
    loop.optimizer.zero_grad()
    loop.loss().backward()
    loop.step()


def summed_by_hand(loop: Watched) -> None:
    """As private training does: each gradient is clipped by itself, and their sum is put back."""
    weights = list(loop.model.parameters())
    total = [torch.zeros_like(weight) for weight in weights]
    for _ in range(PASSES):
        loop.optimizer.zero_grad()
        loop.loss().backward()
        for one, weight in zip(total, weights, strict=True):
            assert weight.grad is not None
            one += weight.grad
    for one, weight in zip(total, weights, strict=True):
        weight.grad = one
    loop.step()
    loop.optimizer.zero_grad()


def moved_in_between(loop: Watched) -> None:
    """As sharpness-aware steps do: the first gradient moves the weights, the second is at that place."""
    before = copy.deepcopy(loop.model.state_dict())
    loop.optimizer.zero_grad()
    loop.loss().backward()
    for weight in loop.model.parameters():
        assert weight.grad is not None
        weight.data.add_(weight.grad, alpha=0.05)
    loop.optimizer.zero_grad()
    loop.loss().backward()
    loop.model.load_state_dict(before)
    loop.step()


def measured_first(loop: Watched) -> None:
    """The size of a gradient is measured on the same forward pass."""
    loss = loop.loss()
    for _ in range(3):
        loss.backward(retain_graph=True)
        loop.optimizer.zero_grad()
    loss.backward()
    loop.step()
    loop.optimizer.zero_grad()


def overflowed(loop: Watched) -> None:
    """A batch with an infinite loss is given up."""
    (loop.loss() * float("inf")).backward()
    loop.optimizer.zero_grad()
    loop.loss().backward()
    loop.step()
    loop.optimizer.zero_grad()


@pytest.mark.parametrize("run", [cleared_before_each_pass, set_to_zero, weight_by_weight])
def test_cleared_passes_are_counted(run: Loop) -> None:
    loop = Watched()
    for _ in range(STEPS):
        run(loop)
    between = loop.between
    assert (between.accumulated, between.only_last) == (STEPS, STEPS)
    assert between.lost_passes == STEPS * (PASSES - 1)


@pytest.mark.parametrize(
    "run", [accumulated, one_pass, summed_by_hand, moved_in_between, measured_first, overflowed]
)
def test_passes_that_are_used_are_none(run: Loop) -> None:
    loop = Watched()
    for _ in range(STEPS):
        run(loop)
    assert loop.between.only_last == 0


def test_nothing_is_left_on_the_weights() -> None:
    loop = Watched()
    cleared_before_each_pass(loop)
    loop.between.stop()
    assert not any(weight._backward_hooks for weight in loop.model.parameters())
    cleared_before_each_pass(loop)
    assert loop.between.accumulated == 1


def test_watching_changes_no_weight() -> None:
    watched, plain = Watched(), Watched()
    plain.between.stop()
    for loop in (watched, plain):
        torch.manual_seed(1)
        accumulated(loop)
    for one, other in zip(watched.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)
