"""Batch: rows that are answered together by one model of transformers, padded on the left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)

from truetune.generation.voice import SamplingParams, SamplingProcessor

GENERATE_ARGUMENTS = ("stopping_criteria", "logits_processor", "past_key_values")
"""Arguments of `generate` that are no settings"""
Ids = Sequence[int]
Progress = Callable[[int, int], None]
"""Is told how many are done, of how many"""
DecodedRow = tuple[list[int], int | None, float | None]
"""Ids, stop id, mean log-probability"""


def is_past(deadline: float | None) -> bool:
    """Is it past a time of time.monotonic?"""
    return deadline is not None and time.monotonic() >= deadline


class ProgressCounter:
    """Counts the answers that are done."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self.progress, self.done = total, progress, 0

    def tell(self, *done: int) -> None:
        """So many of a batch that is under way."""
        if self.progress is not None:
            self.progress(self.done + sum(done), self.total)


@dataclass(frozen=True)
class BatchSettings:
    """How a batch is answered."""

    ends: list[int]
    pad: int
    deadline: float | None
    manner: SamplingParams | None
    count: ProgressCounter


class _Deadline(StoppingCriteria):
    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:
        return torch.full(
            (len(input_ids),), is_past(self.deadline), dtype=torch.bool, device=input_ids.device
        )


class _HalfFinished(StoppingCriteria):
    """Halts a batch when half of it has ended: the others go on without those rows."""

    def __init__(self, ends: list[int], tell: Callable[[int], None]) -> None:
        self.ends, self.tell = torch.tensor(ends), tell
        self.over: Any = False

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:
        self.over = torch.isin(input_ids[:, -1], self.ends.to(input_ids.device)) | self.over
        over, rows = int(self.over.sum()), len(input_ids)
        self.tell(over)
        return torch.full((rows,), rows <= 2 * over < 2 * rows, device=input_ids.device)


def _call_generate(
    model: Any, inputs: Mapping[str, torch.Tensor], pad: int, limit: int, **settings: Any
) -> Any:
    """`settings` are those of GenerationConfig, and the arguments of `generate`."""
    given = {name: settings.pop(name) for name in GENERATE_ARGUMENTS if name in settings}
    settings |= {
        "do_sample": False,
        "max_new_tokens": limit,
        "pad_token_id": pad,
        "use_cache": True,
        "return_dict_in_generate": True,
    }
    return model.generate(**inputs, **given, generation_config=GenerationConfig(**settings))  # type: ignore[no-untyped-call]


def _pad_left(model: Any, rows: Sequence[Ids], pad: int) -> dict[str, torch.Tensor]:
    """On the left."""
    longest, device = max(map(len, rows)), model.get_input_embeddings().weight.device
    return {
        "input_ids": torch.tensor(
            [[pad] * (longest - len(row)) + list(row) for row in rows], device=device
        ),
        "attention_mask": torch.tensor(
            [[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device
        ),
    }


@dataclass
class _Row:
    """An answer that is being made."""

    draws: torch.Tensor
    ids: list[int] = field(default_factory=list)
    thoughts: list[float] = field(default_factory=list)

    def ended(self, ends: list[int]) -> int | None:
        """Where its stop token is"""
        return next((at for at, id in enumerate(self.ids) if id in ends), None)


def decode_batch(
    model: Any, prompts: list[Ids], how: BatchSettings, limit: int
) -> list[DecodedRow | None]:
    """The answer to each of `limit` tokens at most; None where the deadline cut it."""
    rows = [
        _Row(how.manner.draws(prompt, limit) if how.manner else torch.empty(0))
        for prompt in prompts
    ]
    going, inputs, cache = list(rows), _pad_left(model, prompts, how.pad), None
    while going:
        before = len(going[0].ids)
        voice = (
            SamplingProcessor(how.manner, torch.stack([row.draws[before:] for row in going]))
            if how.manner
            else None
        )
        criteria: list[StoppingCriteria] = [_Deadline(how.deadline)]
        if how.ends and isinstance(model, PreTrainedModel):
            criteria.append(
                _HalfFinished(how.ends, partial(how.count.tell, len(rows) - len(going)))
            )
        made = _call_generate(
            model,
            inputs,
            how.pad,
            limit - before,
            eos_token_id=how.ends or None,
            past_key_values=cache,
            stopping_criteria=StoppingCriteriaList(criteria),
            logits_processor=LogitsProcessorList([voice] if voice else []),
        )
        new = made.sequences[:, inputs["input_ids"].shape[1] :]
        thoughts = (
            torch.stack(voice.thoughts[: new.shape[1]], 1).tolist() if voice else [[]] * len(going)
        )
        for row, ids, thought in zip(going, new.tolist(), thoughts, strict=True):
            row.ids += ids
            row.thoughts += thought
        left = [
            at
            for at, row in enumerate(going)
            if row.ended(how.ends) is None and len(row.ids) < limit
        ]
        if not left or is_past(how.deadline):
            break
        going = [going[at] for at in left]
        mask = torch.cat([inputs["attention_mask"], torch.ones_like(new)], 1)
        inputs, cache = (
            {"input_ids": made.sequences[left], "attention_mask": mask[left]},
            _select_cache_rows(made, left),
        )
    how.count.tell(len(rows))
    how.count.done += len(rows)
    return [_decoded_row(row, how.ends, limit) for row in rows]


def _select_cache_rows(made: Any, rows: list[int]) -> Any:
    """The cache of some rows; None where its kind can't be parted, and must be made anew."""
    cache = made.past_key_values
    layers = getattr(cache, "layers", [None])
    if not all(
        hasattr(layer, "batch_select_indices") and not hasattr(layer, "update_conv_state")
        for layer in layers
    ):
        return None
    cache.batch_select_indices(torch.tensor(rows, device=made.sequences.device))
    return cache


def _decoded_row(row: _Row, ends: list[int], limit: int) -> DecodedRow | None:
    at = row.ended(ends)
    if at is None and len(row.ids) < limit:
        return None
    thoughts = row.thoughts[: None if at is None else at + 1]
    logprob = sum(thoughts) / len(thoughts) if thoughts else None
    return row.ids[:at], None if at is None else row.ids[at], logprob


def next_logits(model: Any, rows: Sequence[Ids], pad: int) -> torch.Tensor:
    """(rows, vocabulary) behind each row, float32."""
    found: torch.Tensor = (
        _call_generate(model, _pad_left(model, rows, pad), pad, 1, output_logits=True)
        .logits[0]
        .float()
    )
    return found
