"""The loss of one micro-batch as its trainer computes it: with the inputs, the count of tokens and the dtypes that
`training_step` gives to `compute_loss`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

# Settings of trainers whose `_prepare_inputs` samples answers from the model.
SAMPLING_SETTINGS = ("num_generations", "steps_per_generation")


class TrainerLoss:
    """(model, inputs) -> loss tensor, or what else the trainer's `compute_loss` returns.

    `batches` are the first micro-batches of the run in their order: `num_items_in_batch` counts the tokens of all
    micro-batches of one optimizer step.
    """

    def __init__(self, trainer: Any, batches: Sequence[Mapping[str, Any]]) -> None:
        self.trainer, self.batches = trainer, batches
        self._takes_count = _takes_argument(trainer.compute_loss, "num_items_in_batch")

    def __call__(self, model: torch.nn.Module, inputs: Mapping[str, Any]) -> Any:
        count = self.count_items(model, inputs)
        with ExitStack() as stack:
            stack.enter_context(wrap_forward_in_mixed_precision(self.trainer, model))
            prepared = dict(inputs)
            if hasattr(self.trainer, "_prepare_inputs") and not generates_answers(self.trainer):
                prepared = _on_device(
                    self.trainer._prepare_inputs(prepared), next(model.parameters()).device
                )
            if hasattr(self.trainer, "compute_loss_context_manager"):
                stack.enter_context(self.trainer.compute_loss_context_manager())
            if self._takes_count:
                return self.trainer.compute_loss(model, prepared, num_items_in_batch=count)
            return self.trainer.compute_loss(model, prepared)

    def count_items(self, model: torch.nn.Module, inputs: Mapping[str, Any]) -> Any:
        """`num_items_in_batch` of the optimizer step that these inputs are in; that of these alone where they are none
        of the run's first micro-batches."""
        size = int(
            getattr(getattr(self.trainer, "args", None), "gradient_accumulation_steps", 1) or 1
        )
        for number, batch in enumerate(self.batches):
            if _hold_same_tensors(batch, inputs):
                first = number - number % size
                return count_items(self.trainer, model, self.batches[first : first + size])
        return count_items(self.trainer, model, [inputs])


def count_items(trainer: Any, model: torch.nn.Module, batches: Sequence[Mapping[str, Any]]) -> Any:
    """`num_items_in_batch` as this trainer counts it over the micro-batches of a step; None where it does not."""
    count = getattr(trainer, "get_batch_samples", None)
    if count is None:
        return None
    device = (next(model.parameters()).device,)
    takes = len(inspect.signature(count).parameters)
    return count(iter([dict(batch) for batch in batches]), len(batches), *device[: takes - 2])[1]


def generates_answers(trainer: Any) -> bool:
    """Does the trainer sample its batches from the model?"""
    args = getattr(trainer, "args", None)
    return any(getattr(args, name, None) is not None for name in SAMPLING_SETTINGS)


@contextmanager
def wrap_forward_in_mixed_precision(trainer: Any, model: torch.nn.Module) -> Iterator[None]:
    """The model's forward in the run's mixed precision, as accelerate wraps it when training begins (and may have done
    already). What a trainer computes from its outputs is not autocast in a run either."""
    accelerator = getattr(trainer, "accelerator", None)
    if not getattr(accelerator, "native_amp", False) or "_original_forward" in vars(model):
        yield
        return
    from accelerate.utils import convert_outputs_to_fp32

    forward = model.forward

    @functools.wraps(forward)
    def in_mixed_precision(*args: Any, **kwargs: Any) -> Any:
        with accelerator.autocast():  # type: ignore[union-attr]
            return forward(*args, **kwargs)

    own = "forward" in vars(model)
    vars(model)["forward"] = convert_outputs_to_fp32(in_mixed_precision)
    try:
        yield
    finally:
        if own:
            vars(model)["forward"] = forward
        else:
            del vars(model)["forward"]


def _on_device(inputs: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """The inputs with their tensors on this device: the trainer's own device is not that of a miniature."""
    return {
        key: value.to(device) if isinstance(value, torch.Tensor) else value
        for key, value in inputs.items()
    }


def _takes_argument(function: Any, name: str) -> bool:
    """Does a function take an argument of this name, alone or by `**`?"""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _hold_same_tensors(batch: Mapping[str, Any], inputs: Mapping[str, Any]) -> bool:
    """Do both hold the same tensors?"""
    tensors = [
        (value, inputs.get(key)) for key, value in batch.items() if isinstance(value, torch.Tensor)
    ]
    return bool(tensors) and all(value is other for value, other in tensors)
