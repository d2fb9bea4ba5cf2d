"""What a distillation teaches at each position, read from the gradient of the trainer's own loss.

A loss on whole distributions draws the student's prediction to the teacher's. Its gradient at the student's last hidden
state is made again for each way in which the two may be compared: as the settings say, in the opposite direction, with
the teacher's prediction of the token before or after. The way that explains the gradient is the one that is trained.

The trade-off: a loss that is no divergence of the two whole distributions (the teacher's likeliest tokens alone, a
cross-entropy beside it) is explained by none of them, and is untested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from truetune.probe.compact_vocabulary_to_used_ids import vocab_map_of
from truetune.probe.measuring.law_input_and_result_types import Trial, Untested
from truetune.probe.measuring.restore_all_but_weights_after_law import restore_afterwards
from truetune.probe.measuring.targets_read_from_loss_gradient import (
    IGNORED,
    evenly_limited_positions,
    logits_of_hidden,
    nearest_target_and_weight,
    outputs_and_gradients_of_forward_passes,
)
from truetune.probe.measuring.trainer_gradients import (
    fix_mode_without_waiting_for_processes,
    loss_of,
    trainer_autocast,
)
from truetune.probe.measuring.ways_to_compare_with_teacher import (
    AS_SET,
    OPPOSITE,
    TOKEN_AFTER,
    TOKEN_BEFORE,
)

# How trainers name the teacher.
TEACHER_ATTRIBUTES = ("teacher_model", "teacher")
# TRL's trainer, whose loss takes prompts and completions as `_batch_of_prompts` makes them.
MADE_UP_FOR = "DistillationTrainer"
# Tokens of a made-up completion: long enough for several positions, short enough for no cost. Chosen, not measured.
MADE_UP_TOKENS = 8
# A token whose gradient would be less than this share of the largest one is predicted alike by both, and not missing.
# As for labels (`targets_read_from_loss_gradient`).
MIN_EXPECTED_GRADIENT = 1e-3
# Size of a gradient below which two predictions are the same. Two copies of one model have 1e-8 (rounding of float32),
# two random models of width 32, whose logits are near 0, 3e-4 and more.
MIN_DIFFERENCE = 1e-6


@dataclass(frozen=True)
class CausalModel:
    """A causal model in its parts."""

    inner: Any
    """As transformers made it, inside PEFT's"""
    backbone: Any
    head: Any


@dataclass
class TeacherCall:
    """A pass of the teacher inside the trainer's loss."""

    ids: torch.Tensor | None
    is_noisy: bool
    """Is it in training mode, with dropout?"""


@dataclass
class DistilledPass:
    """What one pass of the student learns; (lines, tokens) bool, a prediction stands at the token before."""

    ids: torch.Tensor
    heard: torch.Tensor
    """Is the prediction in the loss?"""
    expected: torch.Tensor
    """Should it be: is the next token one of the completion?"""
    places: torch.Tensor
    """(n, 2) line and position of the predictions that are looked at closely"""
    ways: list[str | None]
    """(n) how each is compared with the teacher; None where no way explains it"""
    weights: torch.Tensor
    """(n) negative where the prediction is moved away from the teacher's"""
    missing: int
    """Predictions that should be in the loss and are not"""


class _ComparedModels(NamedTuple):
    """The two models of a distillation, in their parts."""

    student: CausalModel
    teacher: CausalModel


class _BodyPass(NamedTuple):
    """What the body of a model returned."""

    output: Any
    hidden: torch.Tensor
    """(lines, tokens, width) last hidden states"""


class _Way(NamedTuple):
    """One way in which a loss may compare the two predictions."""

    name: str
    beta: float
    """Of the divergence: 0 is the forward one, 1 the reverse one"""
    temperature: float
    offset: int
    """Tokens from the student's position to the teacher's"""


def teacher_of(trial: Trial) -> Any:
    """The teacher of the run's trainer. Raises Untested where it has none in this process."""
    for name in TEACHER_ATTRIBUTES:
        model = getattr(trial.trainer, name, None)
        if isinstance(model, torch.nn.Module):
            return model
    raise Untested("the trainer has no teacher model")


def in_parts(model: Any) -> CausalModel:
    """A model in its parts. Raises Untested where it is no whole causal model."""
    while isinstance(getattr(model, "module", None), torch.nn.Module):
        model = model.module
    base: Any = getattr(model, "get_base_model", None)
    inner: Any = base() if base is not None else model
    head = inner.get_output_embeddings() if hasattr(inner, "get_output_embeddings") else None
    backbone = getattr(inner, "base_model", None)
    if head is None or backbone is None or backbone is inner:
        raise Untested("a model has no head over a body of its own")
    if head.weight.numel() == 0:
        raise Untested("the head's weights are not in this process")
    return CausalModel(inner, backbone, head)


def distilled_passes(
    trial: Trial, batch: dict[str, Any]
) -> tuple[list[DistilledPass], list[TeacherCall]]:
    """What the loss of a batch teaches, and the passes of the teacher in it. Raises Untested."""
    teacher = teacher_of(trial)
    if vocab_map_of(trial.model) is not None:
        raise Untested("the miniature's vocabulary is cut, and the teacher's is whole")
    student_parts, teacher_parts = in_parts(trial.model), in_parts(teacher)
    if student_parts.head.weight.shape[0] != teacher_parts.head.weight.shape[0]:
        raise Untested("student and teacher have vocabularies of different sizes")
    masks: list[torch.Tensor | None] = []

    def note_mask(module: Any, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():
            masks.append(kwargs.get("attention_mask"))

    with (
        restore_afterwards(teacher),
        fix_mode_without_waiting_for_processes(trial, training=True),
    ):
        # Before the hook that switches gradients off for the body.
        handle = student_parts.backbone.register_forward_pre_hook(note_mask, with_kwargs=True)
        try:
            with _teacher_calls(teacher_parts) as calls:
                passes = outputs_and_gradients_of_forward_passes(
                    trial, batch, student_parts.inner, student_parts.backbone
                )
        finally:
            handle.remove()
        models = _ComparedModels(student_parts, teacher_parts)
        distilled = []
        for (ids, output, hidden, gradient), mask in zip(passes, masks, strict=False):
            expected = _expected_predictions(batch, ids)
            taught = _pass_of_teacher(trial, teacher_parts, ids, mask)
            student = _BodyPass(output, hidden)
            distilled.append(
                _distilled_pass(trial, models, ids, student, gradient, expected, taught)
            )
    return distilled, calls


def teacher_calls_of_loss(trial: Trial, batch: dict[str, Any]) -> list[TeacherCall]:
    """The passes of the teacher in the loss of a batch. Raises Untested."""
    teacher = teacher_of(trial)
    with (
        restore_afterwards(teacher),
        fix_mode_without_waiting_for_processes(trial, training=True),
        _teacher_calls(in_parts(teacher)) as calls,
        torch.no_grad(),
    ):
        loss_of(trial, batch)
    return calls


def with_made_up_completions(trial: Trial) -> Trial:
    """A run whose batches hold prompts alone, with made-up completions behind them; others as they are.

    What is asked of the loss holds for any completion, and to sample one would cost the run a generation. Raises
    Untested where the trainer is none of TRL's that sample in `_prepare_inputs`.
    """
    if any("labels" in batch or "completion_mask" in batch for batch in trial.batches):
        return trial
    if MADE_UP_FOR not in [base.__name__ for base in type(trial.trainer).__mro__]:
        raise Untested(
            "the batches hold prompts alone: the completions are sampled while it trains"
        )
    prompts = [_prompt_ids(trial, row) for rows in trial.rows[:1] for row in rows]
    device = next(trial.model.parameters()).device
    batch = {name: value.to(device) for name, value in _batch_of_prompts(trial, prompts).items()}

    def loss(model: Any, inputs: Mapping[str, Any]) -> Any:
        # Past `_prepare_inputs`, which would sample.
        with trainer_autocast(trial):
            try:
                return trial.trainer.compute_loss(model, dict(inputs))
            except KeyError as error:
                raise Untested(f"the loss needs more than a completion: {error}") from None

    return replace(trial, batches=[batch], loss=loss)


def _prompt_ids(trial: Trial, row: Any) -> list[int]:
    """The ids of a row's prompt. Raises Untested where it has none that can be read."""
    prompt = row.get("prompt") if isinstance(row, Mapping) else None
    tokenizer = getattr(trial.tokenizer, "tokenizer", trial.tokenizer)
    if prompt is None or tokenizer is None:
        raise Untested("the rows hold no prompts")
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    return list(
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
    )


def _batch_of_prompts(trial: Trial, prompts: Sequence[list[int]]) -> dict[str, torch.Tensor]:
    """Prompts padded on the left and completions of unequal length padded on the right, as TRL has them."""
    generator = torch.Generator().manual_seed(0)
    pad = getattr(trial.tokenizer, "pad_token_id", None) or 0
    rows = in_parts(trial.model).head.weight.shape[0]
    lengths = [max(1, MADE_UP_TOKENS - number) for number in range(len(prompts))]
    completions = [
        torch.randint(rows, (length,), generator=generator).tolist() for length in lengths
    ]
    widest = max(map(len, prompts))
    return {
        "prompt_ids": torch.tensor([[pad] * (widest - len(one)) + one for one in prompts]),
        "prompt_mask": torch.tensor(
            [[0] * (widest - len(one)) + [1] * len(one) for one in prompts]
        ),
        "completion_ids": torch.tensor(
            [one + [pad] * (max(lengths) - len(one)) for one in completions]
        ),
        "completion_mask": torch.tensor(
            [[1] * len(one) + [0] * (max(lengths) - len(one)) for one in completions]
        ),
    }


@contextmanager
def _teacher_calls(teacher: CausalModel) -> Iterator[list[TeacherCall]]:
    """Inside, the passes of the teacher are noted."""
    calls: list[TeacherCall] = []

    def note(module: Any, args: Any, kwargs: Any) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        noisy = any(
            isinstance(part, torch.nn.Dropout) and part.training and part.p > 0
            for part in teacher.inner.modules()
        )
        # Attention takes its probability from the configuration, and no module has it.
        rate = float(getattr(teacher.inner.config, "attention_dropout", 0.0) or 0.0)
        calls.append(TeacherCall(ids, noisy or (rate > 0 and module.training)))

    handle = teacher.backbone.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def _expected_predictions(batch: Mapping[str, Any], ids: torch.Tensor) -> torch.Tensor:
    """(lines, tokens) bool: the predictions whose next token is one of a completion. Raises Untested."""
    in_loss = torch.zeros_like(ids, dtype=torch.bool)
    labels, completion = batch.get("labels"), batch.get("completion_mask")
    if isinstance(labels, torch.Tensor) and labels.shape == ids.shape:
        in_loss = labels != IGNORED
        # Labels as transformers has them stand at their own token. Others are of an unknown convention.
        if not bool((labels == ids)[in_loss].all()):
            raise Untested("the labels are not the ids of their own places")
    elif isinstance(completion, torch.Tensor) and completion.shape[1] < ids.shape[1]:
        in_loss[:, ids.shape[1] - completion.shape[1] :] = completion != 0
    else:
        raise Untested("the batch does not tell which tokens are completions")
    return torch.nn.functional.pad(in_loss[:, 1:], (0, 1), value=False)


def _pass_of_teacher(
    trial: Trial, teacher: CausalModel, ids: torch.Tensor, mask: torch.Tensor | None
) -> _BodyPass:
    """What the teacher's body gives for these tokens, without dropout."""
    teacher.inner.eval()
    named = {} if mask is None else {"attention_mask": mask}
    with torch.no_grad(), trainer_autocast(trial):
        output = teacher.backbone(input_ids=ids, **named)
    return _BodyPass(output, output[0])


def _distilled_pass(
    trial: Trial,
    models: _ComparedModels,
    ids: torch.Tensor,
    student: _BodyPass,
    gradient: torch.Tensor,
    expected: torch.Tensor,
    taught: _BodyPass,
) -> DistilledPass:
    """What one pass learns.

    Args:
        trial: the run.
        models: student and teacher.
        ids: (lines, tokens) that both were given.
        student: what the student's body returned.
        gradient: (lines, tokens, width) of the loss at the student's hidden states.
        expected: (lines, tokens) which predictions should be in the loss.
        taught: what the teacher's body returned.
    """
    heard = (gradient != 0).any(-1)
    places = evenly_limited_positions((heard | expected).nonzero())
    ways = list(_ways_of_comparing(trial))
    gradients = [
        _gradient_of_way(trial, models, student, taught, places, way, ids.shape[1]) for way in ways
    ]
    is_heard = heard[places[:, 0], places[:, 1]]
    nearest_ways, weights = nearest_target_and_weight(
        gradient[places[:, 0], places[:, 1]].float(), [way.name for way in ways], gradients
    )
    # The first way is that of the settings.
    size = gradients[0].norm(dim=-1)
    if float(size.max()) < MIN_DIFFERENCE:
        raise Untested("student and teacher predict the same")
    loud = size > MIN_EXPECTED_GRADIENT * size.max()
    wanted = expected[places[:, 0], places[:, 1]]
    kept = is_heard & loud
    return DistilledPass(
        ids,
        heard,
        expected,
        places[kept],
        [way for way, keep in zip(nearest_ways, kept.tolist(), strict=True) if keep],
        weights[kept],
        int((wanted & loud & ~is_heard).sum()),
    )


def _ways_of_comparing(trial: Trial) -> Iterator[_Way]:
    """The ways in which the two may be compared, that of the settings first; the first of equals is taken."""
    trainer = trial.trainer
    beta = getattr(trainer, "beta", None)
    if not isinstance(beta, int | float) or not 0 <= beta <= 1:
        raise Untested(
            "the trainer has no beta between 0 and 1 that says which divergence is meant"
        )
    temperature = getattr(trainer, "temperature", None)
    # GKD's temperature is that of sampling; TRL's distillation applies its own to both distributions.
    temperatures = sorted({1.0, float(temperature or 1.0)})
    for one in temperatures:
        yield _Way(AS_SET, float(beta), one, 0)
    for one in temperatures:
        if beta != 0.5:
            yield _Way(OPPOSITE, 1.0 - float(beta), one, 0)
        yield _Way(TOKEN_BEFORE, float(beta), one, -1)
        yield _Way(TOKEN_AFTER, float(beta), one, 1)


def _gradient_of_way(
    trial: Trial,
    models: _ComparedModels,
    student: _BodyPass,
    taught: _BodyPass,
    places: torch.Tensor,
    way: _Way,
    tokens: int,
) -> torch.Tensor:
    """(n, width) gradient of the divergence of each two predictions at the student's hidden state.

    Args:
        trial: the run.
        models: student and teacher.
        student: what the student's body returned.
        taught: what the teacher's body returned.
        places: (n, 2) line and position of the student's predictions.
        way: how they are compared with the teacher's.
        tokens: of a line; no position is outside of it.
    """
    leaf = student.hidden[places[:, 0], places[:, 1]][None].detach().requires_grad_()
    taught_positions = (places[:, 1] + way.offset).clamp(0, tokens - 1)
    chosen = taught.hidden[places[:, 0], taught_positions][None]
    with trainer_autocast(trial):
        with torch.no_grad():
            target = _logits_of(models.teacher, taught.output, chosen)
        with torch.enable_grad():
            logits = _logits_of(models.student, student.output, leaf)
    with torch.enable_grad():
        divergence = generalized_divergence(
            logits[0].float(), target[0].float(), way.beta, way.temperature
        )
    return torch.autograd.grad(divergence.sum(), leaf)[0][0].float()


def _logits_of(model: CausalModel, output: Any, hidden: torch.Tensor) -> torch.Tensor:
    """What a model's head makes of hidden states, which its body returned within `output`."""
    return logits_of_hidden(model.inner, model.backbone, model.head, output, hidden)


def generalized_divergence(
    student: torch.Tensor, teacher: torch.Tensor, beta: float, temperature: float
) -> torch.Tensor:
    """(n,) generalized Jensen-Shannon divergence of two rows of logits, after Agarwal et al. 2023 (arXiv:2306.13649),
    equation 1: the forward KL divergence at beta 0, the reverse one at 1, as TRL defines the ends."""
    log_s = torch.log_softmax(student / temperature, -1)
    log_t = torch.log_softmax(teacher / temperature, -1)
    if beta == 0:
        return (log_t.exp() * (log_t - log_s)).sum(-1)
    if beta == 1:
        return (log_s.exp() * (log_s - log_t)).sum(-1)
    mixture = torch.log(beta * log_t.exp() + (1 - beta) * log_s.exp())
    of_teacher = (log_t.exp() * (log_t - mixture)).sum(-1)
    of_student = (log_s.exp() * (log_s - mixture)).sum(-1)
    return beta * of_teacher + (1 - beta) * of_student
