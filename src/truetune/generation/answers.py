"""Answers: what a model in this process says to prompts, greedily, in batches, and without a trace in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from truetune.generation.looks import Answer, Prompt
from truetune.probe.still import still

BATCH_TOKENS = 4096
"""Tokens of a batch, padding and answers included: a cache of at most about 2 GB with a 7B model"""

Decode = Callable[[Sequence[int]], str]


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

    `model` is a causal model of transformers, in PEFT, DDP or torch.compile or not; its mode, settings and buffers and
    all random states are as before afterwards. Prompts of like length go together, padded on the left; a batch that
    does not fit in the device's memory is halved. None where `deadline` (of time.monotonic) came first, or where the
    prompt leaves no room in the model's positions.
    """
    inner, ends = generator_of(model), sorted(set(stops))
    found: list[Answer | None] = [None] * len(prompts)
    room = _positions(inner)
    fitting = [i for i, prompt in enumerate(prompts) if len(prompt.ids) < room]
    with untouched(model), still(), torch.no_grad():
        inner.eval()
        inner.generation_config = GenerationConfig()
        for batch in _batches(fitting, [len(p.ids) for p in prompts], max_new_tokens, batch_tokens):
            if _late(deadline):
                break
            ids = [prompts[i].ids for i in batch]
            limit = min(max_new_tokens, room - max(map(len, ids)))
            said = halving(lambda part: _said(inner, part, ends, pad, limit, deadline), ids)  # noqa: B023
            for i, one in zip(batch, said, strict=True):
                if one is not None:
                    found[i] = Answer(tuple(one[0]), decode(one[0]), one[1])
        asked = [i for i in fitting if found[i] is not None and prompts[i].reference_ids]
        whole = {i: _behind(prompts[i], ends) for i in asked}
        lengths = [len(whole.get(i, ())) for i in range(len(prompts))]
        for batch in _batches([i for i in asked if lengths[i] <= room], lengths, 0, batch_tokens):
            if _late(deadline):
                break
            stopping = halving(lambda part: _stopping(inner, part, ends, pad), [whole[i] for i in batch])
            for i, (probability, rank) in zip(batch, stopping, strict=True):
                answer = found[i]
                assert answer is not None
                found[i] = Answer(answer.ids, answer.text, answer.stop, probability, rank)
    return found


def generator_of(model: Any) -> Any:
    """The model whose `generate` is called: that of transformers inside the wrappers, PEFT's where it adds a prompt."""
    while True:
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if inner is None:
            break
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


def halving(work: Callable[[list[Any]], list[Any]], things: list[Any]) -> list[Any]:
    """`work` on all at once; in halves where the device's memory does not hold that."""
    try:
        return work(things)
    except torch.OutOfMemoryError:
        if len(things) == 1:
            raise
    half = len(things) // 2
    return halving(work, things[:half]) + halving(work, things[half:])


def _positions(model: Any) -> int:
    """How many tokens the model has places for."""
    found = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return found if isinstance(found, int) else 1 << 30


def _late(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _batches(numbers: Sequence[int], lengths: Sequence[int], more: int, size: int) -> Iterator[list[int]]:
    """Numbers of prompts of like length, as many as make `size` tokens with `more` each; at least one."""
    batch: list[int] = []
    for i in sorted(numbers, key=lambda i: lengths[i]):
        if batch and (lengths[i] + more) * (len(batch) + 1) > size:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _padded(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> dict[str, torch.Tensor]:
    """(rows, longest) ids and mask, padded on the left."""
    longest = max(map(len, rows))
    ids = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
    return {"input_ids": ids, "attention_mask": mask}


class _Deadline(StoppingCriteria):
    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:
        return torch.full((len(input_ids),), _late(self.deadline), dtype=torch.bool, device=input_ids.device)


def _generate(model: Any, rows: Sequence[Sequence[int]], pad: int, limit: int, *given: Any, **settings: Any) -> Any:
    """`given` are stopping criteria."""
    config = GenerationConfig(do_sample=False, max_new_tokens=limit, pad_token_id=pad, use_cache=True, **settings)
    inputs = _padded(rows, pad, model.get_input_embeddings().weight.device)
    return model.generate(**inputs, generation_config=config, stopping_criteria=StoppingCriteriaList(given))


def _said(
    model: Any, rows: Sequence[Sequence[int]], ends: list[int], pad: int, limit: int, deadline: float | None
) -> list[tuple[list[int], int | None] | None]:
    """(ids, stop id) of each; None where the deadline cut it."""
    whole = _generate(model, rows, pad, limit, _Deadline(deadline), eos_token_id=ends)
    made = whole[:, max(map(len, rows)) :].tolist()
    cut = len(made[0]) < limit
    found: list[tuple[list[int], int | None] | None] = []
    for ids in made:
        at = next((at for at, id in enumerate(ids) if id in ends), None)
        if at is None:
            found.append(None if cut else (ids, None))
        else:
            found.append((ids[:at], ids[at]))
    return found


def _behind(prompt: Prompt, ends: list[int]) -> tuple[int, ...]:
    """Prompt and reference, up to the stop token."""
    reference = prompt.reference_ids
    while reference and reference[-1] in ends:
        reference = reference[:-1]
    return prompt.ids + reference


def _stopping(model: Any, rows: Sequence[Sequence[int]], ends: list[int], pad: int) -> list[tuple[float, int]]:
    """(probability that any stop token is next, rank of the likeliest of them); the logits of one place a row."""
    made = _generate(model, rows, pad, 1, output_logits=True, return_dict_in_generate=True)
    logits = made.logits[0].float()
    probability = logits.softmax(-1)[:, ends].sum(-1)
    rank = (logits > logits[:, ends].max(-1, keepdim=True).values).sum(-1)
    return list(zip(probability.tolist(), rank.tolist(), strict=True))
