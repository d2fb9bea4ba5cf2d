"""Generates a model's answers to prompts in this process, in batches, and leaves no trace in the model.

It may be a model that is being trained, so nothing of it may be other afterwards: modes, settings, hooks, buffers and
all random states are put back (`restore_modules`, `preserve_state`), whatever the answers did.
Prompts of like length go together, padded on the left; a batch that does not fit in the device's memory is halved
(`run_batch_halving_on_out_of_memory`).

The trade-off: batches are small where prompts differ in length, for padding costs as much as text does, and so does one
more batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from transformers import GenerationConfig

from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.backend import UNKNOWN_POSITIONS, Ids, Progress
from truetune.generation.backends.choose_next_token import reference_ids_before_stop
from truetune.generation.generate_batch_with_transformers import (
    BatchSettings,
    ProgressCounter,
    SamplingParams,
    decode_batch,
    is_past_deadline,
    next_logits,
)
from truetune.probe.restore_state_changed_by_observing_run import preserve_state

T = TypeVar("T")
BATCH_TOKENS = 4096
"""Tokens of a batch, padding and answers included: a cache of at most about 2 GB with a 7B model"""
MAX_PADDING = 1024
"""Tokens of padding in a batch that are allowed however short the answers are"""
# Both chosen, not measured: at half there are more batches, at double more of each is padding.
PADDING_PER_NEW_TOKEN = 32
"""Tokens of padding that are allowed for each new token of an answer, where that is more: on a CPU another batch's step
costs as much"""
Decode = Callable[[Sequence[int]], str]
NumberedIds = tuple[int, Ids]
"""Number of a row, and its ids"""


def generate_answers(
    model: Any,
    prompts: Sequence[Prompt],
    *,
    stops: Iterable[int],
    pad: int,
    max_new_tokens: int,
    decode: Decode,
    batch_tokens: int = BATCH_TOKENS,
    deadline: float | None = None,
    sampling: SamplingParams | None = None,
    progress: Progress | None = None,
) -> list[Answer | None]:
    """The answer to each prompt, and what the model thinks of stopping behind the reference.

    Args:
        model: a causal model of transformers, be it in PEFT, DDP or torch.compile; its modes, settings and buffers and
            all random states are as before afterwards.
        prompts: as they are served.
        stops: ids that end an answer.
        pad: an id with a row in the embedding.
        max_new_tokens: limit of an answer.
        decode: ids to text.
        batch_tokens: tokens of a batch, padding and answers included.
        deadline: a time of time.monotonic, after which nothing more is answered.
        sampling: None for greedy answers without a log-probability.
        progress: is told how many are done.

    Returns:
        One entry a prompt. None where the deadline came first, or where a prompt is empty or leaves no room in the
        model's positions.

    Raises:
        torch.OutOfMemoryError: where a single row does not fit.
    """
    inner, stop_ids = unwrap_to_model_with_generate(model), sorted(set(stops))
    counter = ProgressCounter(len(prompts), progress)
    settings = BatchSettings(stop_ids, pad, deadline, sampling, counter)
    with restore_modules(model), preserve_state(), torch.no_grad():
        # Dropout would change the answers, and batch norm its own buffers.
        inner.eval()
        # Settings that are saved with the model (a repetition penalty, min_new_tokens) would change its answers.
        plain_config: Any = GenerationConfig
        inner.generation_config = plain_config()
        answers = _decode_answers(inner, prompts, max_new_tokens, batch_tokens, decode, settings)
        # Without a stop there is none whose probability could be told.
        if stop_ids:
            answers = _add_stop_probabilities_behind_reference(
                inner, prompts, answers, batch_tokens, settings
            )
    return answers


def _decode_answers(
    model: Any,
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    batch_tokens: int,
    decode: Decode,
    settings: BatchSettings,
) -> list[Answer | None]:
    """The answers alone; arguments and None as in `generate_answers`. The model is in evaluation mode."""
    answers: list[Answer | None] = [None] * len(prompts)
    rows = [(i, prompt.ids) for i, prompt in enumerate(prompts) if prompt.ids]
    positions = _max_positions_of_model(model)
    for batch, room in _batches_of_like_length(
        rows, max_new_tokens, positions, batch_tokens, settings.deadline
    ):
        decode_part = partial(decode_batch, model, settings=settings, limit=room)
        for i, row in run_batch_halving_on_out_of_memory(decode_part, batch):
            answers[i] = Answer(tuple(row.ids), decode(row.ids), row.stop, logprob=row.logprob)
    return answers


def _add_stop_probabilities_behind_reference(
    model: Any,
    prompts: Sequence[Prompt],
    answers: Sequence[Answer | None],
    batch_tokens: int,
    settings: BatchSettings,
) -> list[Answer | None]:
    """The answers with how likely a stop is behind the reference, where there is one and the deadline has not come."""
    references = [
        (i, (*prompts[i].ids, *reference_ids_before_stop(prompts[i], settings.stops)))
        for i, answer in enumerate(answers)
        if answer and prompts[i].reference_ids
    ]
    # One position more: the token behind a reference that fills all of them is asked for and never read.
    positions = _max_positions_of_model(model) + 1
    with_estimates = list(answers)
    for batch, _ in _batches_of_like_length(
        references, 1, positions, batch_tokens, settings.deadline
    ):
        estimate_part = partial(
            _stop_probabilities_and_ranks, model, stops=settings.stops, pad=settings.pad
        )
        for i, (probability, rank) in run_batch_halving_on_out_of_memory(estimate_part, batch):
            answer = answers[i]
            assert answer is not None
            with_estimates[i] = replace(answer, stop_probability=probability, stop_rank=rank)
    return with_estimates


def unwrap_to_model_with_generate(model: Any) -> Any:
    """The model whose `generate` is called: that of transformers inside the wrappers, PEFT's where it adds a prompt."""
    while True:
        # torch.compile keeps the model as _orig_mod, DDP and DataParallel as module.
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if inner is None:
            break
        model = inner
    configs = getattr(model, "peft_config", None)
    if isinstance(configs, dict):
        adds_prompt = any(config.is_prompt_learning for config in configs.values())
        # PEFT's own generate puts the learned prompt before the text; of other adapters the base does the work
        # itself.
        return model if adds_prompt else model.get_base_model()
    return model


@contextmanager
def restore_modules(model: torch.nn.Module) -> Iterator[None]:
    """Put back the attributes and buffers of every module: modes, settings, hooks, and what a cache has left there."""
    # All of `vars`, and not a list of names: what else models keep on themselves (a rotary embedding's cache, a flag
    # of gradient checkpointing) is known to nobody. Tensors are put back as objects; nothing here changes them inside.
    before = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes, buffers in before:
            vars(module).clear()
            vars(module).update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)


def run_batch_halving_on_out_of_memory(
    work: Callable[[list[Ids]], Sequence[T | None]], batch: list[NumberedIds]
) -> Iterator[tuple[int, T]]:
    """Work on a batch, by halves where the device's memory does not hold all at once.

    Args:
        work: gets the ids of rows, gives a result for each, or None.
        batch: rows with their numbers.

    Yields:
        (number, result) of each row that has one.

    Raises:
        torch.OutOfMemoryError: where a single row does not fit.
    """
    try:
        results = work([ids for _, ids in batch])
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
    else:
        for (i, _), result in zip(batch, results, strict=True):
            if result is not None:
                yield i, result
        return
    # Behind the except block: inside it the error would hold the frames, and with them the tensors that did not fit.
    half = len(batch) // 2
    yield from run_batch_halving_on_out_of_memory(work, batch[:half])
    yield from run_batch_halving_on_out_of_memory(work, batch[half:])


def _max_positions_of_model(model: Any) -> int:
    """How many tokens the model has places for."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return positions if isinstance(positions, int) else UNKNOWN_POSITIONS


def _batches_of_like_length(
    rows: Iterable[NumberedIds], new: int, positions: int, size: int, deadline: float | None
) -> Iterator[tuple[list[NumberedIds], int]]:
    """Rows of like length together, the shortest first, until the deadline.

    Args:
        rows: ids with their numbers; those that leave no room are left out.
        new: tokens that come behind each.
        positions: tokens that the model has places for.
        size: tokens of a batch, padding and new ones included, at most.
        deadline: a time of time.monotonic.

    Yields:
        A batch, and how many of the new tokens its rows have room for.
    """
    batch: list[NumberedIds] = []
    room, tokens = new, 0
    fitting = [row for row in rows if len(row[1]) < positions]
    for row in sorted(fitting, key=lambda row: len(row[1])):
        length, count = len(row[1]), len(batch) + 1
        own_room = min(new, positions - length)
        padding = length * count - tokens - length
        is_full = (length + new) * count > size
        # Rows with less room are apart, as all rows of a batch have one limit.
        if batch and (
            own_room != room or is_full or padding > max(MAX_PADDING, PADDING_PER_NEW_TOKEN * new)
        ):
            if is_past_deadline(deadline):
                return
            yield batch, room
            batch, tokens = [], 0
        batch.append(row)
        room, tokens = own_room, tokens + length
    if batch and not is_past_deadline(deadline):
        yield batch, room


def _stop_probabilities_and_ranks(
    model: Any, rows: list[Ids], stops: list[int], pad: int
) -> list[tuple[float, int]]:
    """(probability that any stop token is next, rank of the likeliest of them, 0 = first) behind each row.

    Args:
        model: in evaluation mode.
        rows: ids, not empty.
        stops: at least one id.
        pad: an id with a row in the embedding.
    """
    logits = next_logits(model, rows, pad)
    probabilities = logits.softmax(-1)[:, stops].sum(-1)
    ranks = (logits > logits[:, stops].max(-1, keepdim=True).values).sum(-1)
    return list(zip(probabilities.tolist(), ranks.tolist(), strict=True))
