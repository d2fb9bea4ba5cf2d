"""Answers: what a model in this process says to prompts, greedily, in batches, and without a trace in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from truetune.generation.looks import Answer, Prompt
from truetune.probe.still import still

BATCH_TOKENS = 4096
"""Tokens of a batch, padding and answers included: a cache of at most about 2 GB with a 7B model"""

Decode = Callable[[Sequence[int]], str]
Ids = Sequence[int]


def answers(
    model: Any,
    prompts: Sequence[Prompt],
    *,
    stops: Iterable[int],
    pad: int,
    max_new_tokens: int,
    decode: Decode,
    batch_tokens: int = BATCH_TOKENS,
    deadline: float | None = None,
) -> list[Answer | None]:
    """The answer to each prompt, until a stop id or the limit; with what the model thinks of stopping behind the
    reference.

    `model` is a causal model of transformers, be it in PEFT, DDP or torch.compile; its modes, settings and buffers and
    all random states are as before afterwards. Prompts of like length go together, padded on the left; a batch that
    does not fit in the device's memory is halved. None where `deadline` (of time.monotonic) came first, or where a
    prompt is empty or leaves no room in the model's positions.
    """
    inner, ends = generator_of(model), sorted(set(stops))
    found: list[Answer | None] = [None] * len(prompts)
    with untouched(model), still(), torch.no_grad():
        inner.eval()
        inner.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
        asked = [(i, prompt.ids) for i, prompt in enumerate(prompts) if prompt.ids]
        for batch, room in _batches(asked, max_new_tokens, _positions(inner), batch_tokens, deadline):
            for i, (ids, stop) in _halving(lambda part: _said(inner, part, ends, pad, room, deadline), batch):  # noqa: B023
                found[i] = Answer(tuple(ids), decode(ids), stop)
        taught = [(i, _behind(prompts[i], ends)) for i, said in enumerate(found) if said and prompts[i].reference_ids]
        if not ends:
            return found
        for batch, _ in _batches(taught, 1, _positions(inner) + 1, batch_tokens, deadline):
            for i, (probability, rank) in _halving(lambda part: _stopping(inner, part, ends, pad), batch):
                found[i] = replace(found[i], stop_probability=probability, stop_rank=rank)  # type: ignore[type-var]
    return found


def generator_of(model: Any) -> Any:
    """The model whose `generate` is called: that of transformers inside the wrappers, PEFT's where it adds a prompt."""
    while (inner := getattr(model, "_orig_mod", None) or getattr(model, "module", None)) is not None:
        model = inner
    configs = getattr(model, "peft_config", None)
    if isinstance(configs, dict) and not any(config.is_prompt_learning for config in configs.values()):
        return model.get_base_model()
    return model


@contextmanager
def untouched(model: torch.nn.Module) -> Iterator[None]:
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


def _halving(work: Callable[[list[Ids]], list[Any]], batch: list[tuple[int, Ids]]) -> Iterator[tuple[int, Any]]:
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
    yield from _halving(work, batch[:half])
    yield from _halving(work, batch[half:])


def _positions(model: Any) -> int:
    """How many tokens the model has places for."""
    found = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return found if isinstance(found, int) else 1 << 30


def _late(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _batches(
    rows: Iterable[tuple[int, Ids]], more: int, positions: int, size: int, deadline: float | None
) -> Iterator[tuple[list[tuple[int, Ids]], int]]:
    """Rows of like length, as many as make `size` tokens with `more` each, and how many of those they have room for;
    until the deadline."""
    batch: list[tuple[int, Ids]] = []
    room = more
    for row in sorted((row for row in rows if len(row[1]) < positions), key=lambda row: len(row[1])):
        own = min(more, positions - len(row[1]))
        if batch and (own != room or (len(row[1]) + more) * (len(batch) + 1) > size):
            if _late(deadline):
                return
            yield batch, room
            batch = []
        batch.append(row)
        room = own
    if batch and not _late(deadline):
        yield batch, room


class _Deadline(StoppingCriteria):
    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:
        return torch.full((len(input_ids),), _late(self.deadline), dtype=torch.bool, device=input_ids.device)


def _generate(model: Any, rows: list[Ids], pad: int, limit: int, *criteria: StoppingCriteria, **settings: Any) -> Any:
    settings |= {"do_sample": False, "max_new_tokens": limit, "pad_token_id": pad, "use_cache": True}
    longest, device = max(map(len, rows)), model.get_input_embeddings().weight.device
    return model.generate(
        input_ids=torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows], device=device),
        attention_mask=torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device),
        generation_config=GenerationConfig(**settings),  # type: ignore[no-untyped-call]
        stopping_criteria=StoppingCriteriaList(criteria),
    )


def _said(
    model: Any, rows: list[Ids], ends: list[int], pad: int, limit: int, deadline: float | None
) -> list[tuple[list[int], int | None] | None]:
    """(ids, stop id) of each; None where the deadline cut it."""
    whole = _generate(model, rows, pad, limit, _Deadline(deadline), eos_token_id=ends or None)
    found: list[tuple[list[int], int | None] | None] = []
    for ids in whole[:, max(map(len, rows)) :].tolist():
        at = next((at for at, id in enumerate(ids) if id in ends), None)
        if at is None:
            found.append(None if len(ids) < limit else (ids, None))
        else:
            found.append((ids[:at], ids[at]))
    return found


def _behind(prompt: Prompt, ends: list[int]) -> Ids:
    """Prompt and reference, up to the stop token."""
    reference = prompt.reference_ids
    while reference and reference[-1] in ends:
        reference = reference[:-1]
    return prompt.ids + reference


def _stopping(model: Any, rows: list[Ids], ends: list[int], pad: int) -> list[tuple[float, int]]:
    """(probability that any stop token is next, rank of the likeliest of them); the logits of one place a row."""
    made = _generate(model, rows, pad, 1, output_logits=True, return_dict_in_generate=True)
    logits = made.logits[0].float()
    probability = logits.softmax(-1)[:, ends].sum(-1)
    rank = (logits > logits[:, ends].max(-1, keepdim=True).values).sum(-1)
    return list(zip(probability.tolist(), rank.tolist(), strict=True))
