"""Checkpointing of activations changes neither loss nor gradients."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.logits import logits_of, unpadded_documents
from truetune.probe.measuring.rounding_tolerance import inputs_of, rounding_tolerance
from truetune.probe.measuring.trial import Measured, Trial, Untested

COST: Cost = "quick"
LONGEST = 128
# Elements of each tensor's gradient that are kept to be compared.
SAMPLE = 4096
# Gradients of a tensor are compared by its largest one, or this share of the largest of all.
FLOOR = 1e-3
# Options of the trainer, not of torch's checkpoint.
OWN = ("every_n_layers", "offload", "selective")
Gradients = dict[str, torch.Tensor | None]


def measure_law(trial: Trial) -> Measured:
    """Next-token loss and gradients of one real row, with dropout as it is, as the run checkpoints and without."""
    model: Any = trial.model
    if any(getattr(p, "_post_accumulate_grad_hooks", None) for p in model.parameters()):
        raise Untested("the optimizer steps inside the backward pass")
    if not _is_checkpointing(model):
        _enable_checkpointing(model, trial)
    row = unpadded_documents(trial)[0][None, :LONGEST]
    loss, gradients = _loss_and_gradients(model, row)
    for module in model.modules():
        if "gradient_checkpointing" in vars(module):
            module.gradient_checkpointing = False
    plain_loss, plain = _loss_and_gradients(model, row)
    if all(g is None for g in plain.values()):
        raise Untested("no parameter is trained")
    lost = [
        name for name, gradient in plain.items() if gradient is not None and gradients[name] is None
    ]
    apart = dict.fromkeys(lost, 1.0) | _gradient_distance(plain, gradients)
    apart["the loss"] = abs(loss - plain_loss) / max(abs(plain_loss), 1e-12)
    worst = max(apart, key=lambda name: apart[name] if apart[name] == apart[name] else float("inf"))
    evidence = {
        "worst": worst,
        "loss": loss,
        "loss without": plain_loss,
        "lost": lost[:8],
        "tensors lost": len(lost),
        "tensors": sum(g is not None for g in plain.values()),
    }
    return Measured(
        apart[worst],
        rounding_tolerance(model),
        "relative difference of a tensor's gradient",
        evidence,
    )


def _is_checkpointing(model: torch.nn.Module) -> bool:
    return any(vars(module).get("gradient_checkpointing") for module in model.modules())


def _enable_checkpointing(model: Any, trial: Trial) -> None:
    """As the trainer will do when it starts."""
    args = getattr(trial.trainer, "args", None)
    options = {
        k: v
        for k, v in (getattr(args, "gradient_checkpointing_kwargs", None) or {}).items()
        if k not in OWN
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
    model.train()
    torch.manual_seed(0)
    inputs = {"input_ids": row, "attention_mask": torch.ones_like(row), "use_cache": False}
    logits = logits_of(model(**inputs_of(inputs, model)))
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
                else own.flatten()[:: max(own.numel() // SAMPLE, 1)].float().cpu()
            )
    return float(loss), gradients


def _gradient_distance(plain: Gradients, gradients: Gradients) -> dict[str, float]:
    sizes = {name: float(g.abs().max()) for name, g in plain.items() if g is not None}
    floor = FLOOR * max(sizes.values(), default=0.0)
    distances = {}
    for name, size in sizes.items():
        a, b = plain[name], gradients[name]
        if a is not None and b is not None:
            distances[name] = float((a - b).abs().max() / max(size, floor, 1e-12))
    return distances
