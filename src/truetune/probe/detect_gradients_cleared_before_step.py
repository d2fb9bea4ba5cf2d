"""Sees whether the gradients of micro-batches are cleared before their step, in a loop of the user's own.

How it works: one small trained weight is watched. Before each backward pass adds to its gradient, the gradient is
looked at: where an earlier pass left something and nothing is there any more, it was cleared. A step counts where that
happened before each of its passes but the first, and it is given the gradient of the last pass alone.

The trade-off: code that keeps gradients elsewhere (per-row clipping, several tasks) clears them too, and gives the step
another gradient; code that changes the weights between two passes has used them. Neither counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Chosen: a weight with fewer values may have the direction of a sum by chance.
MIN_VALUES = 16
# Cosine from which a step's gradient is that of the last pass. Chosen: clipping and loss scaling keep the direction,
# and rounding in 16 bits turns it by less than a thousandth.
SAME_DIRECTION = 0.999


class GradientsBetweenSteps:
    """The backward passes since the last step, as one weight of the optimizer saw them."""

    def __init__(self) -> None:
        self.accumulated = 0
        """Steps after several backward passes, each with a forward pass of its own"""
        self.only_last = 0
        """Those of them that were given the gradient of the last pass alone"""
        self.lost_passes = 0
        """Backward passes whose gradients were cleared unused before those steps"""
        self._weight: Any = None
        self._handle: Any = None
        self._begin_step()

    def _begin_step(self) -> None:
        """Forget the passes before a step."""
        self._forward = self._passes = self._cleared = 0
        self._incoming: torch.Tensor | None = None
        self._value: torch.Tensor | None = None

    def watch(
        self, optimizer: Any, listen: Callable[[Any, Callable[[torch.Tensor], None]], Any]
    ) -> None:
        """Watch one weight of an optimizer from now on.

        Args:
            optimizer: the one whose steps are noted.
            listen: given a weight and a function, registers the function for the weight's
                gradients, and returns the handle that removes it.
        """
        weights = [
            weight
            for group in optimizer.param_groups
            for weight in group["params"]
            if weight.requires_grad and weight.is_leaf and weight.numel() >= MIN_VALUES
        ]
        if weights and self._handle is None:
            self._weight = min(weights, key=lambda weight: int(weight.numel()))
            self._handle = listen(self._weight, self.note_backward)

    def stop(self) -> None:
        """Watch no weight any more."""
        handle, self._handle, self._weight = self._handle, None, None
        self._begin_step()
        if handle is not None:
            handle.remove()

    def note_forward(self) -> None:
        """Note a forward pass of the model with gradients."""
        self._forward += 1

    def note_backward(self, incoming: torch.Tensor) -> None:
        """Note a backward pass, before its gradient is added."""
        import torch  # the hook of a run is loaded before the script imports it

        weight, earlier = self._weight, self._incoming
        if weight is None or not bool(incoming.isfinite().all()):
            return
        if self._value is not None and not torch.equal(self._value, weight.detach()):
            self._begin_step()  # something used the gradients
            earlier = None
        if earlier is not None and bool(earlier.any()):
            self._cleared += weight.grad is None or not bool(weight.grad.any())
        self._passes += 1
        self._incoming, self._value = incoming.detach().clone(), weight.detach().clone()

    def note_step(self) -> None:
        """Note a step of the optimizer, before it is taken."""
        if self._weight is None or self._passes < 2 or self._forward != self._passes:
            self._begin_step()
            return
        self.accumulated += 1
        is_cleared_each_time = self._cleared == self._passes - 1
        if is_cleared_each_time and _have_same_direction(self._weight.grad, self._incoming):
            self.only_last += 1
            self.lost_passes += self._cleared
        self._begin_step()


def _have_same_direction(gradient: torch.Tensor | None, last: torch.Tensor | None) -> bool:
    """Is a gradient that of the last pass, but for a factor?"""
    import torch

    if gradient is None or last is None:
        return False
    one, other = gradient.detach().flatten().float(), last.flatten().float()
    return bool(torch.nn.functional.cosine_similarity(one, other, dim=0) > SAME_DIRECTION)
