"""Counts the steps that optimizers take on the weights of one model, in a loop of the user's own.

A loop may have several optimizers. Each is kept by its identity, and asked only for what every optimizer of torch has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truetune.probe.detect_gradients_cleared_before_step import GradientsBetweenSteps


class LoopSteps:
    """What was seen of the steps that optimizers took on the weights of one model."""

    def __init__(self) -> None:
        self.seen = 0
        self.without_gradient = 0
        """Those before which no weight of the optimizer had a gradient but zero"""
        self.between = GradientsBetweenSteps()
        """What became of gradients between two steps"""
        self._optimizers: dict[int, Any] = {}

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers: one may hold the matrices, another the rest."""
        return [
            group for optimizer in self._optimizers.values() for group in optimizer.param_groups
        ]

    def note(self, optimizer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note a step of an optimizer, and count it. One with a closure (Lightning's, L-BFGS) computes its
        gradients itself: it is not counted.
        """
        # By identity, as an optimizer of the user's may define `__eq__` and so lose its hash.
        self._optimizers[id(optimizer)] = optimizer
        # torch hands the optimizer itself on as the first of the arguments.
        if any(callable(argument) for argument in (*args, *kwargs.values())):
            return
        self.seen += 1
        self.between.note_step()
        weights = (weight for group in optimizer.param_groups for weight in group["params"])
        if not any(weight.grad is not None and bool(weight.grad.any()) for weight in weights):
            self.without_gradient += 1
