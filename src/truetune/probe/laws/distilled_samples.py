"""A distillation on sampled answers learns the sampled tokens, up to the stop token, and neither prompt nor padding.

One `training_step` is made as far as its loss: the sampler's output is noted, and then what the loss is given. A sample
is kept short, since only its frame is looked at.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.distilled_predictions import teacher_of
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.restore_all_but_weights_after_law import restore_afterwards
from truetune.probe.measuring.targets_read_from_loss_gradient import IGNORED
from truetune.probe.measuring.trainer_gradients import (
    fix_mode_without_waiting_for_processes,
    replace_attribute,
)

COST: Cost = "quick"
# Tokens of a sample. Chosen, not measured: what is looked at lies at its two ends.
MAX_SAMPLED_TOKENS = 16


class _LossReached(Exception):
    """The trainer is about to compute its loss."""


def measure_law(trial: Trial) -> Measured:
    """Share of the tokens of a sampled batch that are in the loss and should not be, or the other way round."""
    teacher = teacher_of(trial)
    samples, config = _sampled_share(trial)
    if not samples or config is None:
        raise Untested("the trainer samples no answers in its training_step")
    if not trial.batches or "input_ids" not in trial.batches[0]:
        raise Untested(
            "the batches hold prompts alone: the completions are sampled while it trains"
        )
    prompt_length, sequences, inputs = _sample_once(trial, teacher, config)
    labels = _labels_of_sampled_rows(inputs, sequences)
    sampled = [_up_to_first_stop(row[prompt_length:], config) for row in sequences.tolist()]
    learned = [row[row != IGNORED].tolist() for row in labels]
    in_prompt = int((labels[:, :prompt_length] != IGNORED).sum())
    pairs = list(zip(sampled, learned, strict=True))
    other_rows = sum(of_sample != in_loss for of_sample, in_loss in pairs)
    too_many = sum(max(0, len(in_loss) - len(of_sample)) for of_sample, in_loss in pairs)
    evidence: dict[str, Any] = {
        "tokens": sum(map(len, sampled)),
        "rows": len(sampled),
        "other rows": other_rows,
        "prompt": in_prompt,
        "beyond": too_many - in_prompt,
        "left out": sum(max(0, len(of_sample) - len(in_loss)) for of_sample, in_loss in pairs),
    }
    unit = "share of sampled answers whose tokens in the loss are not the sampled ones"
    return Measured(other_rows / len(sampled), 0.0, unit, evidence)


def _labels_of_sampled_rows(inputs: dict[str, Any], sequences: torch.Tensor) -> torch.Tensor:
    """The labels that the loss is given. Raises Untested where there are none, or they are of other rows."""
    ids, labels = inputs.get("input_ids"), inputs.get("labels")
    if not isinstance(labels, torch.Tensor) or not isinstance(ids, torch.Tensor):
        raise Untested("the loss is given no labels")
    if ids.shape[0] != sequences.shape[0] or labels.shape != ids.shape:
        raise Untested("the loss is given other rows than were sampled")
    return labels


def _sampled_share(trial: Trial) -> tuple[float, Any]:
    """How often the trainer samples its answers (1 where the teacher always does), and the generation settings."""
    trainer = trial.trainer
    share = getattr(trainer, "lmbda", None)
    if getattr(trainer, "seq_kd", False):
        share = 1.0
    config = getattr(trainer, "generation_config", None)
    return (float(share) if isinstance(share, int | float) else 0.0), config


def _sample_once(
    trial: Trial, teacher: Any, config: Any
) -> tuple[int, torch.Tensor, dict[str, Any]]:
    """The length of the padded prompts, what was sampled behind them, and what the loss is given. Raises Untested."""
    trainer, sampled, inputs_of_loss = trial.trainer, [], []
    short = copy.deepcopy(config)
    short.max_new_tokens = min(MAX_SAMPLED_TOKENS, int(config.max_new_tokens or MAX_SAMPLED_TOKENS))

    def note_sample(args: Any, kwargs: Any, result: Any) -> None:
        prompts = kwargs.get("input_ids", args[1] if len(args) > 1 else None)
        sequences = getattr(result, "sequences", result)
        if isinstance(prompts, torch.Tensor) and isinstance(sequences, torch.Tensor):
            sampled.append((prompts.shape[1], sequences.detach().clone()))

    def stop_before_loss(model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        inputs_of_loss.append(dict(inputs))
        raise _LossReached

    with ExitStack() as stack:
        stack.enter_context(restore_afterwards(teacher))
        stack.enter_context(fix_mode_without_waiting_for_processes(trial))
        stack.enter_context(replace_attribute(trainer, "generation_config", short))
        stack.enter_context(replace_attribute(trainer, "compute_loss", stop_before_loss))
        if not getattr(trainer, "seq_kd", False):
            # GKD draws whether a batch is sampled; here it is.
            stack.enter_context(replace_attribute(trainer, "lmbda", 1.0))
        stack.enter_context(_noting_generate(note_sample))
        with suppress(_LossReached):
            trainer.training_step(trial.model, dict(trial.batches[0]), None)
    if len(sampled) != 1 or not inputs_of_loss:
        raise Untested("the trainer's training_step does not sample once before its loss")
    return (*sampled[0], inputs_of_loss[0])


@contextmanager
def _noting_generate(note: Callable[[Any, Any, Any], None]) -> Iterator[None]:
    """Inside, what transformers' `generate` is given and gives is shown to `note`."""
    owner: Any = getattr(sys.modules.get("transformers.generation.utils"), "GenerationMixin", None)
    if owner is None:
        raise Untested("no model of transformers samples")
    former = owner.generate

    def generate(*args: Any, **kwargs: Any) -> Any:
        result = former(*args, **kwargs)
        note(args, kwargs, result)
        return result

    owner.generate = generate
    try:
        yield
    finally:
        owner.generate = former


def _up_to_first_stop(ids: list[int], config: Any) -> list[int]:
    """What was sampled: up to its first stop token, that one included."""
    stops = config.eos_token_id
    known = {stops} if isinstance(stops, int) else set(stops or ())
    end = next((place for place, token in enumerate(ids) if token in known), len(ids) - 1)
    return ids[: end + 1]
