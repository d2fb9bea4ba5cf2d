"""Losses and gradients of a run that is about to start, computed as its trainer does, without a trace.

`fix_mode_without_waiting_for_processes` is the block in which laws compute: nothing in it stays. `loss_of` is one
micro-batch's loss, `step_gradients` what an optimizer step would be given, through the trainer's own `training_step`.

The trade-off: the trainer is steered by replacing its attributes for a while (`train`, `backward`, `gather`), since its
methods do not take what a law varies. A trainer that does without one of them makes the law untested.
"""

from __future__ import annotations

import copy
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from truetune.probe.measuring.law_input_and_result_types import Trial, Untested
from truetune.probe.measuring.restore_all_but_weights_after_law import restore_afterwards
from truetune.probe.measuring.rounding_tolerance import (
    coarsest_precision,
    forward_inputs_without_labels,
)
from truetune.probe.measuring.trainer_loss import (
    count_items,
    generates_answers,
    wrap_forward_in_mixed_precision,
)

# Weights whose gradients are compared, at most. Chosen, not measured: 80 MB in float32 for each gradient. With many
# more, two gradients may not fit beside the model; with fewer, wide layers have no tensor that is small enough.
MAX_COMPARED_WEIGHTS = 20_000_000
# Tokens of a row up to which attention is computed whole. Chosen, not measured: heads x length x length numbers a row
# and layer, 256 MB for 32 heads in 16 bits.
WHOLE_ATTENTION_LENGTH = 2048
# Names of the tensors that peft adds.
ADAPTER_TENSOR = re.compile(
    r"lora_|hada_|lokr_|oft_|vera_|ia3_|boft_|magnitude|prompt_encoder|modules_to_save|trainable_tokens"
)


@contextmanager
def fix_mode_without_waiting_for_processes(
    trial: Trial, *, training: bool = False
) -> Iterator[None]:
    """Inside, the model stays in train or eval mode, and no process waits for another. Afterwards all is as before."""
    model = trial.model
    with (
        restore_afterwards(model, *models_beside(trial), trainer=trial.trainer),
        _gather_own_process_alone(trial.trainer),
    ):
        model.train(training)
        # The trainer calls `model.train()` at each step, which would switch dropout on again.
        with replace_attribute(model, "train", lambda mode=True: model), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


def models_beside(trial: Trial) -> list[Any]:
    """The models that the trainer's loss asks beside the trained one, None for each that it has not."""
    return [getattr(trial.trainer, name, None) for name in ("ref_model", "teacher_model")]


@contextmanager
def attention_without_blocks(trial: Trial, rows: Sequence[Any]) -> Iterator[bool]:
    """Inside, torch's attention computes its matrix whole and not by blocks, where it can: yields whether it does.

    The blocks of a fused kernel depend on the shape of a batch, and so does what it rounds in 16 bits. On an H200 the
    gradient of one batch and of its rows differed by up to 1.48 of its size in a right trainer, over random models of 2
    to 16 layers; by 0.017 at most with attention computed whole.
    """
    computed_by = getattr(getattr(trial.model, "config", None), "_attn_implementation", None)
    if computed_by == "eager":
        yield True
        return
    longest = max((_row_length(row) for row in rows), default=0)
    if computed_by != "sdpa" or longest > WHOLE_ATTENTION_LENGTH:
        yield False
        return
    with sdpa_kernel(SDPBackend.MATH):
        yield True


def _row_length(row: Any) -> int:
    """Tokens of a prepared row: the length of its longest column; 0 where it is no mapping."""
    if not isinstance(row, Mapping):
        return 0
    return max((len(value) for value in row.values() if hasattr(value, "__len__")), default=0)


@contextmanager
def replace_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Inside, an attribute of one object is replaced by this value."""
    # By `vars`, past any `__setattr__` of the class: a module would register a parameter or refuse.
    own = vars(owner)
    missing = name not in own
    before = own.get(name)
    own[name] = value
    try:
        yield
    finally:
        if missing:
            del own[name]
        else:
            own[name] = before


@contextmanager
def _gather_own_process_alone(trainer: Any) -> Iterator[None]:
    """What is gathered over the processes is this process's own."""
    accelerator = getattr(trainer, "accelerator", None)
    with ExitStack() as stack:
        if accelerator is not None:
            # A real gather waits for processes that do not run this law, for ever.
            for name in ("gather", "gather_for_metrics"):
                stack.enter_context(
                    replace_attribute(accelerator, name, lambda value, *_, **__: value)
                )
        yield


@contextmanager
def trainer_autocast(trial: Trial) -> Iterator[None]:
    """Inside, computations are in the trainer's autocast."""
    with ExitStack() as stack:
        if hasattr(trial.trainer, "compute_loss_context_manager"):
            stack.enter_context(trial.trainer.compute_loss_context_manager())
        if hasattr(getattr(trial.trainer, "accelerator", None), "autocast"):
            stack.enter_context(trial.trainer.accelerator.autocast())
        yield


def coarsest_dtype(trial: Trial) -> torch.dtype:
    """The coarsest dtype that the run computes in."""
    mixed = str(getattr(getattr(trial.trainer, "accelerator", None), "mixed_precision", "no"))
    return {"fp16": torch.float16, "bf16": torch.bfloat16}.get(mixed) or coarsest_precision(
        trial.model
    )


def loss_of(trial: Trial, batch: Mapping[str, Any]) -> torch.Tensor:
    """The loss of one micro-batch. Raises Untested where it can't be computed alone, or is not one number."""
    refuse_trainers_that_sample_answers(trial)
    if getattr(trial.trainer, "is_fsdp_enabled", False):
        raise Untested("the weights are spread over processes (FSDP)")
    loss = trial.loss(trial.model, dict(batch))
    # With `return_outputs` a trainer gives the outputs beside.
    loss = loss[0] if isinstance(loss, tuple) else loss
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise Untested("the loss is not one number")
    return loss


def refuse_trainers_that_sample_answers(trial: Trial) -> None:
    """Raises Untested for trainers whose batches are sampled from the model: they hold prompts alone."""
    if generates_answers(trial.trainer) or (
        trial.trainer is not None and not any(map(holds_answers, trial.batches))
    ):
        raise Untested("the trainer generates its own answers")


def holds_answers(batch: Mapping[str, Any]) -> bool:
    """Does a batch hold answers: the ids of more than prompts, or no ids at all, as those of encoders of
    images?
    """
    ids = [name for name in batch if name.endswith("input_ids")]
    tensors = any(isinstance(value, torch.Tensor) for value in batch.values())
    return tensors and (not ids or any(not name.startswith("prompt_") for name in ids))


def require_whole_weights(trial: Trial) -> None:
    """Raises Untested where the weights are not all in this process, or a backward pass would change them."""
    trainer = trial.trainer
    if getattr(trainer, "is_deepspeed_enabled", False) or getattr(
        trainer, "is_fsdp_enabled", False
    ):
        raise Untested("the weights are spread over processes (DeepSpeed, FSDP)")
    # Fused steps (GaLore by layer, LOMO) change the weights in `backward`, which could not be put back.
    if any(getattr(p, "_post_accumulate_grad_hooks", None) for p in trial.model.parameters()):
        raise Untested("the optimizer steps inside the backward pass")
    if any(p.numel() == 0 for p in trial.model.parameters()):
        raise Untested("some weights are not in this process")


def choose_last_trained_parameters(
    model: torch.nn.Module, limit: int = MAX_COMPARED_WEIGHTS
) -> dict[str, torch.nn.Parameter]:
    """Trained tensors, the last ones first, of at most `limit` weights in all. Raises Untested where there is none."""
    chosen, left = {}, limit
    # The last ones first: their gradient does not go through the layers before, so rounding adds up least.
    for name, p in reversed(list(model.named_parameters())):
        if p.requires_grad and p.is_floating_point() and 0 < p.numel() <= left:
            chosen[name] = p
            left -= p.numel()
    if not chosen:
        raise Untested("no tensor of the model is trained")
    return chosen


def step_gradients(
    trial: Trial,
    batches: Sequence[Mapping[str, Any]],
    parameters: Sequence[torch.Tensor],
    items: Any = None,
) -> list[torch.Tensor]:
    """The gradients that one optimizer step over these micro-batches gets, through the trainer's own `training_step`.

    `items` is the number of supervised tokens as the Trainer counts it; counted here where it is None. Raises Untested
    where the trainer runs the backward pass on its own, or takes a step.
    """
    trainer, total = trial.trainer, [torch.zeros_like(p, dtype=torch.float32) for p in parameters]
    items = num_items_in_batch(trial, batches) if items is None else items
    for batch in batches:
        losses: list[torch.Tensor] = []

        # The loss is taken where the trainer hands it to accelerate, after all that it divides it by. `losses` as a
        # default, since the function is defined again in each turn of the loop.
        def backward(loss: torch.Tensor, losses: list[torch.Tensor] = losses, **_: Any) -> None:
            losses.append(loss / trainer.accelerator.gradient_accumulation_steps)

        with ExitStack() as stack:
            stack.enter_context(_refuse_optimizer_steps())
            stack.enter_context(replace_attribute(trainer.accelerator, "backward", backward))
            stack.enter_context(
                # The Trainer divides by it where it does not count tokens.
                replace_attribute(trainer, "current_gradient_accumulation_steps", len(batches))
            )
            stack.enter_context(wrap_forward_in_mixed_precision(trainer, trial.model))
            trainer.training_step(trial.model, dict(batch), items)
        if not losses:
            raise Untested("the trainer's training_step does not call accelerator.backward")
        whole = sum(losses)
        # Without `.backward()`: no `.grad` is written, and no hook of a distributed wrapper runs.
        gradients = torch.autograd.grad(whole, parameters, allow_unused=True)  # type: ignore[arg-type] # not 0: losses is not empty
        for sum_, gradient in zip(total, gradients, strict=True):
            sum_ += 0 if gradient is None else gradient.float()
    return total


@contextmanager
def refuse_sampling() -> Iterator[None]:
    """Inside, no model samples: a call of transformers' `generate` raises Untested.

    A `training_step` that samples trains on other tokens at each call (GKD on its own answers), so that two of its
    gradients can't be compared.
    """

    def refuse(*_: Any, **__: Any) -> None:
        raise Untested("the trainer's training_step samples the answers that it trains on")

    # Where it isn't loaded no model of transformers samples.
    owner: Any = getattr(sys.modules.get("transformers.generation.utils"), "GenerationMixin", None)
    if owner is None:
        yield
        return
    former = owner.generate
    owner.generate = refuse
    try:
        yield
    finally:
        owner.generate = former


@contextmanager
def _refuse_optimizer_steps() -> Iterator[None]:
    """Inside, no optimizer changes a weight: a step of any raises Untested, before it begins.

    `training_step` may be the user's own, and step an optimizer that nothing here knows of; on a GPU it runs in the
    user's process, on the weights that are about to be trained.
    """

    def refuse(*_: Any, **__: Any) -> None:
        raise Untested("the trainer's training_step takes an optimizer step of its own")

    # The hook of all optimizers, which torch runs before any of them.
    handle = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()


def num_items_in_batch(trial: Trial, batches: Sequence[Mapping[str, Any]]) -> Any:
    """`num_items_in_batch` as this trainer counts it; None where it does not."""
    return count_items(trial.trainer, trial.model, batches)


@contextmanager
def pretend_process_count(
    trial: Trial, count: int, tokens: list[Any] | None = None
) -> Iterator[None]:
    """The trainer's accelerator says that there are so many processes; with `tokens`, it gathers these."""
    accelerator = trial.trainer.accelerator
    # accelerate and the training arguments may share one state: it is replaced once, and put back once.
    states = {
        id(vars(s)): s
        for s in (accelerator.state, getattr(trial.trainer.args, "distributed_state", None))
        if s
    }
    with ExitStack() as stack:
        for state in states.values():
            stack.enter_context(replace_attribute(state, "num_processes", count))
        if tokens is not None and isinstance(tokens[0], torch.Tensor):
            stack.enter_context(
                replace_attribute(accelerator, "gather", lambda *_, **__: torch.stack(tokens))
            )
        yield


def gradient_distance(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> dict[str, float]:
    """How far two gradients are apart: {relative, ratio, cosine} of all their tensors as one vector."""
    # In float64, as sums over millions of squares lose digits in float32.
    norm_a, norm_b = (float(sum((x.double() ** 2).sum() for x in g)) ** 0.5 for g in (a, b))
    between = float(sum(((x - y).double() ** 2).sum() for x, y in zip(a, b, strict=True))) ** 0.5
    dot = float(sum((x.double() * y.double()).sum() for x, y in zip(a, b, strict=True)))
    return {
        "relative": between / max(norm_a, 1e-30),
        "ratio": norm_b / max(norm_a, 1e-30),
        "cosine": dot / max(norm_a * norm_b, 1e-30),
    }


def rows_to_collate_shortest_first(trial: Trial) -> list[Any]:
    """Rows of the first batches as the collator takes them, shortest supervised part first. Raises Untested."""
    rows = [row for batch in trial.rows for row in batch]
    if trial.collate is None or len(rows) < 2:
        raise Untested("there are no two rows and their collator")
    return sorted(rows, key=_count_supervised_tokens)


def _count_supervised_tokens(row: Any) -> int:
    """Tokens of a prepared row that are in the loss, by its labels or mask; all where it has neither."""
    if not isinstance(row, Mapping):
        return 0
    labels = row.get("labels")
    if labels is not None and hasattr(labels, "__len__"):
        return sum(int(label) != -100 for label in labels)
    masked = row.get("completion_mask", row.get("assistant_masks"))
    if masked is not None:
        return sum(int(flag) != 0 for flag in masked)
    return _row_length(row)


def collate_rows_on_device(trial: Trial, rows: Sequence[Any]) -> dict[str, Any]:
    """Rows through the run's own collator, on the model's device. Raises Untested where it gives no mapping."""
    device = next(trial.model.parameters()).device
    # Copies, since some collators pop keys from the rows.
    batch = trial.collate([copy.copy(row) for row in rows])
    if not isinstance(batch, Mapping):
        raise Untested("the collator gives no mapping")
    return {
        key: value.to(device) if isinstance(value, torch.Tensor) else value
        for key, value in batch.items()
    }


def compute_once_for_same_weights(trial: Trial, name: str, make: Callable[[], Any]) -> Any:
    """What several laws need of one trial, made once for the same weights. What it raises is raised each time."""
    # `_version` counts in-place changes: after a step of the optimizer it is another key.
    kept, key = (
        vars(trial).setdefault("_shared", {}),
        (name, sum(p._version for p in trial.model.parameters())),
    )
    if key not in kept:
        kept[key] = make()
    return kept[key]


@contextmanager
def nudge_weights(tensors: Sequence[torch.Tensor], size: float) -> Iterator[None]:
    """Inside, weights are nudged at random by `size` of their own root mean square; afterwards they are
    the same to the last bit.
    """
    kept = [tensor.detach().clone() for tensor in tensors]
    try:
        with torch.no_grad():
            for tensor in tensors:
                # A tensor of zeros (LoRA's B) has no size of its own.
                scale = float(tensor.float().square().mean().sqrt()) or 0.5
                tensor.add_(torch.randn_like(tensor), alpha=size * scale)
        yield
    finally:
        with torch.no_grad():
            for tensor, before in zip(tensors, kept, strict=True):
                tensor.copy_(before)


def logits_of_first_batch(trial: Trial) -> torch.Tensor:
    """The model's logits of the first batch. Raises Untested where there is none."""
    batch = next((batch for batch in trial.batches if "input_ids" in batch), None)
    if batch is None:
        raise Untested("no batch has input_ids")
    with trainer_autocast(trial), torch.no_grad():
        return torch.as_tensor(
            trial.model(
                **forward_inputs_without_labels(
                    {
                        k: v[:2] if isinstance(v, torch.Tensor) and v.dim() > 1 else v
                        for k, v in batch.items()
                    },
                    trial.model,
                )
            ).logits
        )
