"""Answers: what a model in this process says to prompts, in batches, and without a trace in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from transformers import GenerationConfig

from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.decode_batch import (
    BatchSettings,
    Ids,
    Progress,
    ProgressCounter,
    decode_batch,
    is_past,
    next_logits,
)
from truetune.generation.voice import SamplingParams
from truetune.probe.preserve_state import preserve_state

BATCH_TOKENS = 4096
"""Tokens of a batch, padding and answers included: a cache of at most about 2 GB with a 7B model"""

WASTE, STEP = 1024, 32
"""Tokens of padding in a batch, at most, or so many for each new one: on a CPU another batch's step costs as much"""
Decode = Callable[[Sequence[int]], str]


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
    manner: SamplingParams | None = None,
    progress: Progress | None = None,
) -> list[Answer | None]:
    """The answer to each prompt, until a stop id or the limit; with what the model thinks of stopping behind the
    reference. Without a `manner` they are greedy, and have no log-probability.

    `model` is a causal model of transformers, be it in PEFT, DDP or torch.compile; its modes, settings and buffers and
    all random states are as before afterwards. Prompts of like length go together, padded on the left; a batch that
    does not fit in the device's memory is halved, and rows that have ended leave it. None where `deadline` (of
    time.monotonic) came first, or where a prompt is empty or leaves no room in the model's positions.
    """
    inner, ends = generating_model(model), sorted(set(stops))
    how = BatchSettings(ends, pad, deadline, manner, ProgressCounter(len(prompts), progress))
    found: list[Answer | None] = [None] * len(prompts)
    with restore_modules(model), preserve_state(), torch.no_grad():
        inner.eval()
        inner.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
        asked = [(i, prompt.ids) for i, prompt in enumerate(prompts) if prompt.ids]
        for batch, room in _batches(
            asked, max_new_tokens, _max_positions(inner), batch_tokens, deadline
        ):
            answer_part = partial(decode_batch, inner, how=how, limit=room)
            for i, (ids, stop, logprob) in run_in_halves(answer_part, batch):
                found[i] = Answer(tuple(ids), decode(ids), stop, logprob=logprob)
        taught = [
            (i, _prompt_and_reference(prompts[i], ends))
            for i, made in enumerate(found)
            if made and prompts[i].reference_ids
        ]
        if not ends:
            return found
        for batch, _ in _batches(taught, 1, _max_positions(inner) + 1, batch_tokens, deadline):
            for i, (probability, rank) in run_in_halves(
                lambda part: _stop_estimates(inner, part, ends, pad), batch
            ):
                found[i] = replace(found[i], stop_probability=probability, stop_rank=rank)  # type: ignore[type-var]
    return found


def generating_model(model: Any) -> Any:
    """The model whose `generate` is called: that of transformers inside the wrappers, PEFT's where it adds a prompt."""
    while (
        inner := getattr(model, "_orig_mod", None) or getattr(model, "module", None)
    ) is not None:
        model = inner
    configs = getattr(model, "peft_config", None)
    if isinstance(configs, dict) and not any(
        config.is_prompt_learning for config in configs.values()
    ):
        return model.get_base_model()
    return model


@contextmanager
def restore_modules(model: torch.nn.Module) -> Iterator[None]:
    """Put back the attributes and buffers of every module: modes, settings, hooks, and what a cache has left there."""
    kept = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes, buffers in kept:
            vars(module).clear()
            vars(module).update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)


def run_in_halves(
    work: Callable[[list[Ids]], list[Any]], batch: list[tuple[int, Ids]]
) -> Iterator[tuple[int, Any]]:
    """(number, result) of each that has one; by halves where the device's memory does not hold all at once."""
    try:
        made = work([ids for _, ids in batch])
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
    else:
        yield from ((i, one) for (i, _), one in zip(batch, made, strict=True) if one is not None)
        return
    half = len(batch) // 2
    yield from run_in_halves(work, batch[:half])
    yield from run_in_halves(work, batch[half:])


def _max_positions(model: Any) -> int:
    """How many tokens the model has places for."""
    found = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return found if isinstance(found, int) else 1 << 30


def _batches(
    rows: Iterable[tuple[int, Ids]], more: int, positions: int, size: int, deadline: float | None
) -> Iterator[tuple[list[tuple[int, Ids]], int]]:
    """Rows of like length, as many as make `size` tokens with `more` each, and how many of those they have room for;
    until the deadline."""
    batch: list[tuple[int, Ids]] = []
    room, read = more, 0
    for row in sorted(
        (row for row in rows if len(row[1]) < positions), key=lambda row: len(row[1])
    ):
        length, count = len(row[1]), len(batch) + 1
        own = min(more, positions - length)
        padding = length * count - read - length
        if batch and (
            own != room or (length + more) * count > size or padding > max(WASTE, STEP * more)
        ):
            if is_past(deadline):
                return
            yield batch, room
            batch, read = [], 0
        batch.append(row)
        room, read = own, read + length
    if batch and not is_past(deadline):
        yield batch, room


def _prompt_and_reference(prompt: Prompt, ends: list[int]) -> Ids:
    """Prompt and reference, up to the stop token."""
    reference = prompt.reference_ids
    while reference and reference[-1] in ends:
        reference = reference[:-1]
    return prompt.ids + reference


def _stop_estimates(
    model: Any, rows: list[Ids], ends: list[int], pad: int
) -> list[tuple[float, int]]:
    """(probability that any stop token is next, rank of the likeliest of them); the logits of one place a row."""
    logits = next_logits(model, rows, pad)
    probability = logits.softmax(-1)[:, ends].sum(-1)
    rank = (logits > logits[:, ends].max(-1, keepdim=True).values).sum(-1)
    return list(zip(probability.tolist(), rank.tolist(), strict=True))
