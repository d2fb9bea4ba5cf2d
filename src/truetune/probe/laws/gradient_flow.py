"""Every trained tensor gets a gradient from the first batches, and the optimizer holds all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.trainer_gradients import (
    ADAPTER_TENSOR,
    fix_mode_without_waiting_for_processes,
    loss_of,
    require_whole_weights,
)

COST: Cost = "quick"
# Two, so that a module which one batch has no use for (a modality, an expert) may be reached by the other.
MAX_BATCHES = 2
MAX_SHOWN_TENSORS = 8
POOLER = re.compile(r"(?:^|\.)pooler\.")
# The number of an expert in the name of its tensors.
EXPERT_NUMBER = re.compile(r"(\.experts?\.)\d+\.")


def measure_law(trial: Trial) -> Measured:
    """Share of the trained tensors that get no gradient or are in no group of the optimizer, in the run's own mode.

    What is normal is not counted: a factor of an adapter whose partner starts at zero, an expert without a token, a
    new token that does not occur, the head over the vocabulary where the loss is made of something else (embeddings),
    the pooler of an encoder that nothing reads.
    """
    require_whole_weights(trial)
    trained = {name: p for name, p in trial.model.named_parameters() if p.requires_grad}
    if not trained:
        none = {"trained": 0, "adapter": _is_peft_model(trial)}
        return Measured(1.0, 0.0, "share of trained tensors without gradient or optimizer", none)
    with (
        fix_mode_without_waiting_for_processes(trial, training=True),
        _list_calls_of_head(trial.model) as runs,
    ):
        dead, zero, loss = _missing_and_zero_gradients_and_loss(trial, trained)
        normal = set(_may_be_zero_at_start(trial.model, trained, dead | zero))
        if not runs and len(dead) < len(trained):
            # A loss on embeddings never calls the head, so that this has no gradient is normal.
            normal |= _names_of_head_parameters(trial.model) & dead
        normal |= _idle_pooler_tensors(dead, len(trained))
    without = sorted((dead | zero) - normal, key=list(trained).index)
    lost, foreign = _tensors_missing_in_optimizer_and_foreign_count(trial, trained)
    evidence: dict[str, Any] = {
        "trained": len(trained),
        "without": len(without),
        "names": without[:MAX_SHOWN_TENSORS],
        "never reached": len(dead - normal),
        "adapter": _is_peft_model(trial),
        "in the adapter": sum(bool(ADAPTER_TENSOR.search(name)) for name in without),
        "adapter tensors": sum(bool(ADAPTER_TENSOR.search(name)) for name in trained),
        "checkpointing": any(
            getattr(m, "gradient_checkpointing", False) for m in trial.model.modules()
        ),
        "loss has a graph": loss is not None,
        "loss": loss,
        "idle": sorted(normal)[:MAX_SHOWN_TENSORS],
        "optimizer is known": trial.optimizer is not None or trial.trainer is not None,
        "outside the optimizer": {
            "count": len(lost),
            "names": lost[:MAX_SHOWN_TENSORS],
            "foreign": foreign,
        },
    }
    value = max(len(without), len(lost)) / len(trained)
    return Measured(value, 0.0, "share of trained tensors without gradient or optimizer", evidence)


def _idle_pooler_tensors(dead: set[str], trained: int) -> set[str]:
    """The tensors without a gradient of an encoder's pooler, where others have one: who takes the mean of the tokens,
    or a head of them, does not read it.
    """
    return {name for name in dead if POOLER.search(name)} if len(dead) < trained else set()


def _missing_and_zero_gradients_and_loss(
    trial: Trial, trained: dict[str, torch.nn.Parameter]
) -> tuple[set[str], set[str], float | None]:
    """(names without a gradient, names whose gradient is all zero, the last loss) after some real batches."""
    last_loss = None
    for batch in trial.batches[:MAX_BATCHES]:
        loss = loss_of(trial, batch)
        if not loss.requires_grad:
            return set(trained), set(), None
        if not bool(torch.isfinite(loss)):
            raise Untested("the loss is not finite")
        loss.backward()  # type: ignore[no-untyped-call]
        last_loss = float(loss.detach())
        dead, zero = _names_of_missing_and_zero_gradients(trained)
        if not dead and not zero:
            break
    if last_loss is None:
        raise Untested("there is no batch")
    dead, zero = _names_of_missing_and_zero_gradients(trained)
    return dead, zero, last_loss


def _names_of_missing_and_zero_gradients(
    trained: dict[str, torch.nn.Parameter],
) -> tuple[set[str], set[str]]:
    """Names of the tensors that have no gradient, and of those whose gradient is all zero."""
    reached = {name: p.grad for name, p in trained.items() if p.grad is not None}
    return set(trained) - set(reached), {n for n, grad in reached.items() if not bool(grad.any())}


@contextmanager
def _list_calls_of_head(model: Any) -> Iterator[list[str]]:
    """Inside, the calls of the head over the vocabulary are listed: a loss on embeddings makes none."""
    calls: list[str] = []
    heads = _head_modules(model)
    hooks = [head.register_forward_pre_hook(lambda *_: calls.append("head")) for head in heads]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _head_modules(model: Any) -> list[torch.nn.Module]:
    """The head over the vocabulary, in a list; empty where the model has none."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return [head] if isinstance(head, torch.nn.Module) else []


def _names_of_head_parameters(model: Any) -> set[str]:
    """Names of the parameters of the head over the vocabulary."""
    own = {id(p) for head in _head_modules(model) for p in head.parameters()}
    return {name for name, p in model.named_parameters() if id(p) in own}


def _may_be_zero_at_start(
    model: torch.nn.Module, trained: dict[str, torch.nn.Parameter], without: set[str]
) -> Iterator[str]:
    """Tensors whose gradient may well be zero at the start."""
    for name in without:
        if _is_tensor_of_idle_expert(name, trained, without) or (
            trained[name].grad is not None
            and (
                _has_zero_adapter_partner(model, name, trained[name]) or "trainable_tokens" in name
            )
        ):
            yield name


def _is_tensor_of_idle_expert(
    name: str, trained: dict[str, torch.nn.Parameter], without: set[str]
) -> bool:
    """Is it of an expert that no token was sent to, while the same tensor of another expert has a gradient?"""
    kin = EXPERT_NUMBER.sub(r"\1*.", name)
    return kin != name and any(
        other not in without and EXPERT_NUMBER.sub(r"\1*.", other) == kin for other in trained
    )


def _has_zero_adapter_partner(
    model: torch.nn.Module, name: str, tensor: torch.nn.Parameter
) -> bool:
    """Is it a factor of an adapter whose other factor is zero? LoRA's B is at the start, so A has no gradient yet."""
    if not ADAPTER_TENSOR.search(name):
        return False
    partners = [
        p
        for p in model.get_submodule(_module_name_of_adapter_tensor(name)).parameters()
        if p.requires_grad and p is not tensor
    ]
    return any(not bool(p.any()) for p in partners)


def _module_name_of_adapter_tensor(name: str) -> str:
    """The module that an adapter's tensor belongs to: `q_proj` of `q_proj.lora_A.default.weight`."""
    match = ADAPTER_TENSOR.search(name)
    return name[: match.start()].rstrip(".") if match else name.rpartition(".")[0]


def _is_peft_model(trial: Trial) -> bool:
    """Is it a model of PEFT?"""
    return bool(getattr(trial.model, "peft_config", None))


def _tensors_missing_in_optimizer_and_foreign_count(
    trial: Trial, trained: dict[str, torch.nn.Parameter]
) -> tuple[list[str], int]:
    """(trained tensors that the optimizer does not hold, tensors in it that are none of the model's)."""
    optimizer = (
        trial.optimizer if trial.trainer is None else getattr(trial.trainer, "optimizer", None)
    )
    groups = getattr(optimizer, "param_groups", None)
    # A dictionary of optimizers steps inside the backward pass, and DeepSpeed's dummy holds nothing yet: of neither is
    # known which tensors it will train.
    if (
        not groups
        or hasattr(trial.trainer, "optimizer_dict")
        or "Dummy" in type(optimizer).__name__
    ):
        return [], 0
    held = {id(p) for group in groups for p in group["params"]}
    own = {id(p) for p in trial.model.parameters()}
    return [name for name, p in trained.items() if id(p) not in held], len(held - own)
