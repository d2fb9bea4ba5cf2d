"""Checkpointing of activations changes neither loss nor gradients."""

from __future__ import annotations

from math import isnan
from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.compute_logits import logits_of_output, unpadded_documents
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.rounding_tolerance import (
    forward_inputs_without_labels,
    rounding_tolerance,
)

COST: Cost = "quick"
# Tokens of the row. Chosen, not measured: a layer that is recomputed wrongly is so for any row, and this is quick on a
# large model.
MAX_ROW_TOKENS = 128
# Elements of each tensor's gradient that are kept to be compared. Chosen, not measured: all of them would need the
# memory of the model twice.
SAMPLED_ELEMENTS = 4096
# Gradients of a tensor are compared by its largest one, or this share of the largest of all: else rounding in a tensor
# whose gradient is nearly zero would count as a difference.
MIN_GRADIENT_SHARE = 1e-3
# Options of the trainer, not of torch's checkpoint.
TRAINER_OPTIONS = ("every_n_layers", "offload", "selective")
Gradients = dict[str, torch.Tensor | None]


def measure_law(trial: Trial) -> Measured:
    """Next-token loss and gradients of one real row, with dropout as it is, as the run checkpoints and without."""
    model: Any = trial.model
    if any(getattr(p, "_post_accumulate_grad_hooks", None) for p in model.parameters()):
        raise Untested("the optimizer steps inside the backward pass")
    if not _is_checkpointing(model):
        _enable_checkpointing(model, trial)
    loss, gradients, plain_loss, plain = _with_and_without_checkpointing(model, trial)
    distances = _relative_gradient_differences(plain, gradients)
    distances["the loss"] = abs(loss - plain_loss) / max(abs(plain_loss), 1e-12)
    # A nan is the worst of all: `max` alone would pass it by.
    worst = max(
        distances, key=lambda name: float("inf") if isnan(distances[name]) else distances[name]
    )
    lost = _tensors_without_gradient_if_checkpointed(plain, gradients)
    evidence = {
        "worst": worst,
        "loss": loss,
        "loss without": plain_loss,
        "lost": lost[:8],
        "tensors lost": len(lost),
        "tensors": sum(gradient is not None for gradient in plain.values()),
    }
    return Measured(
        distances[worst],
        rounding_tolerance(model),
        "relative difference of a tensor's gradient",
        evidence,
    )


def _with_and_without_checkpointing(
    model: Any, trial: Trial
) -> tuple[float, Gradients, float, Gradients]:
    """Loss and gradients of one real row as the run checkpoints, and without. Raises Untested where none is trained."""
    row = unpadded_documents(trial)[0][None, :MAX_ROW_TOKENS]
    loss, gradients = _loss_and_gradients(model, row)
    for module in model.modules():
        if "gradient_checkpointing" in vars(module):
            module.gradient_checkpointing = False
    plain_loss, plain = _loss_and_gradients(model, row)
    if all(gradient is None for gradient in plain.values()):
        raise Untested("no parameter is trained")
    return loss, gradients, plain_loss, plain


def _tensors_without_gradient_if_checkpointed(plain: Gradients, gradients: Gradients) -> list[str]:
    """Tensors that have a gradient without checkpointing, and none with it."""
    return [
        name for name, gradient in plain.items() if gradient is not None and gradients[name] is None
    ]


def _relative_gradient_differences(plain: Gradients, gradients: Gradients) -> dict[str, float]:
    """Relative difference of each tensor's gradient; 1 where checkpointing loses it."""
    return dict.fromkeys(
        _tensors_without_gradient_if_checkpointed(plain, gradients), 1.0
    ) | _largest_gradient_differences(plain, gradients)


def _is_checkpointing(model: torch.nn.Module) -> bool:
    """Does any of its modules recompute activations?"""
    return any(vars(module).get("gradient_checkpointing") for module in model.modules())


def _enable_checkpointing(model: Any, trial: Trial) -> None:
    """Enable checkpointing as the trainer will do when it starts."""
    args = getattr(trial.trainer, "args", None)
    options = {
        k: v
        for k, v in (getattr(args, "gradient_checkpointing_kwargs", None) or {}).items()
        if k not in TRAINER_OPTIONS
    }
    enable = getattr(model, "activation_checkpointing_enable", None) or getattr(
        model, "gradient_checkpointing_enable", None
    )
    if not getattr(args, "gradient_checkpointing", False) or enable is None:
        raise Untested("the run does not checkpoint")
    enable(options or None)
    if not _is_checkpointing(model):
        raise Untested("the model has no checkpointing to switch on")


def _loss_and_gradients(model: torch.nn.Module, row: torch.Tensor) -> tuple[float, Gradients]:
    """The next-token loss of one row of ids, and a sample of each trained tensor's gradient."""
    # Models checkpoint in train mode alone. The seed makes both passes drop the same activations: a checkpoint that
    # does not preserve the random state differs exactly here.
    model.train()
    torch.manual_seed(0)
    inputs = {"input_ids": row, "attention_mask": torch.ones_like(row), "use_cache": False}
    logits = logits_of_output(model(**forward_inputs_without_labels(inputs, model)))
    loss = torch.nn.functional.cross_entropy(logits[0, :-1].float(), row[0, 1:])
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]
    gradients: Gradients = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            own, parameter.grad = parameter.grad, None
            gradients[name] = (
                None
                if own is None
                else own.flatten()[:: max(own.numel() // SAMPLED_ELEMENTS, 1)].float().cpu()
            )
    return float(loss), gradients


def _largest_gradient_differences(plain: Gradients, gradients: Gradients) -> dict[str, float]:
    """Largest difference of each tensor's gradient, of its largest element: those with a gradient in both."""
    sizes = {name: float(g.abs().max()) for name, g in plain.items() if g is not None}
    floor = MIN_GRADIENT_SHARE * max(sizes.values(), default=0.0)
    distances = {}
    for name, size in sizes.items():
        a, b = plain[name], gradients[name]
        if a is not None and b is not None:
            distances[name] = float((a - b).abs().max() / max(size, floor, 1e-12))
    return distances
