"""Answer a batch of prompts with a model of transformers: padded on the left, each row until its stop token.

`generate` of transformers computes a batch until its longest row has ended, so that one answer that runs to the limit
costs as much as if all did. Here a batch is halted when half of its rows have ended, the others continue without them,
and their cache is cut to these rows (`_HalfFinished`, `_select_cache_rows`).

Which token is next is chosen by `SamplingProcessor`, inside of `generate`: each row draws its own numbers, made of its
prompt and the seed, so that an answer does not depend on what else is in the batch, or when rows leave it.

The trade-off: a model whose cache can't be cut (recurrent states, custom layers) reads the text of its remaining rows
again after each halt. That is exact, and slower than not halting only where many rows end one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)

from truetune.generation.backends.backend import Ids, Progress

GENERATE_ARGUMENTS = ("stopping_criteria", "logits_processor", "past_key_values")
"""Arguments of `generate` that are no settings"""
# Chosen, not measured: a top_p of 0.95 seldom holds more than some hundred, and sorting a vocabulary of 152,000 for
# each token costs as much as a small model.
SORTED_TOKENS = 1024
"""Likeliest tokens that are sorted for top_p, where they are enough"""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen."""

    temperature: float = 0.0
    """0: the likeliest"""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def random_numbers_for_prompt(self, ids: Sequence[int], count: int) -> torch.Tensor:
        """(count,) numbers in [0, 1): those of one prompt, whatever else is asked."""
        # numpy's generator takes a list as its seed. A seed and the ids of the prompt make one stream for each
        # prompt.
        return torch.from_numpy(np.random.default_rng([self.seed % 2**63, *ids]).random(count))


@dataclass(frozen=True, slots=True)
class DecodedRow:
    """The answer of one row."""

    ids: list[int]
    """Without the stop token"""
    stop: int | None
    """The stop id that ended it; None where it was cut at the limit"""
    logprob: float | None
    """Mean of its tokens under the model, in nats, stop token among them; None where none was asked for"""


class ProgressCounter:
    """Counts the answers that are done.

    Attributes:
        done: answers of batches that are finished.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self.progress, self.done = total, progress, 0

    def report(self, *under_way: int) -> None:
        """Tell how many are done, with so many of a batch that is under way."""
        if self.progress is not None:
            self.progress(self.done + sum(under_way), self.total)


@dataclass(frozen=True)
class BatchSettings:
    """How a batch is answered."""

    stops: list[int]
    pad: int
    deadline: float | None
    """A time of time.monotonic"""
    sampling: SamplingParams | None
    """None: greedy, and no log-probabilities are kept"""
    counter: ProgressCounter


class SamplingProcessor(LogitsProcessor):
    """Chooses the token of each row, and keeps its log-probability under the model itself (temperature 1, all tokens).

    `generate` is told to be greedy, and gets scores in which the chosen token alone is possible: its own sampling draws
    from torch's random state, which one more row in the batch would change.

    Attributes:
        logprobs: of each step, (rows,) in nats.
    """

    def __init__(self, sampling: SamplingParams, draws: torch.Tensor) -> None:
        """`draws` is (rows, steps), in [0, 1)."""
        self.sampling, self.draws = sampling, draws
        self.logprobs: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> Any:
        """Scores (rows, vocabulary) with which `generate` takes the chosen tokens."""
        if self.sampling.temperature:
            draw = self.draws[:, len(self.logprobs)].to(scores.device, torch.float32)
            # Draws of float32 are enough: 24 bits part more places than a vocabulary has.
            probabilities = (scores / self.sampling.temperature).softmax(-1)
            chosen = draw_tokens(
                probabilities, draw[:, None], top_p=self.sampling.top_p, min_p=self.sampling.min_p
            )
        else:
            chosen = scores.argmax(-1, keepdim=True)
        logprobs = scores.gather(-1, chosen) - scores.logsumexp(-1, keepdim=True)
        self.logprobs.append(logprobs[:, 0])
        if not self.sampling.temperature:
            return scores
        return torch.full_like(scores, -torch.inf).scatter(-1, chosen, 0.0)


def draw_tokens(
    probabilities: torch.Tensor, draw: torch.Tensor, *, top_p: float = 1.0, min_p: float = 0.0
) -> torch.Tensor:
    """Draw a token for each row, by the inverse of the distribution function.

    Args:
        probabilities: (rows, vocabulary).
        draw: (rows, 1) numbers in [0, 1].
        top_p: they are cut to the fewest likeliest that make it.
        min_p: and to those that are at least this share as likely as the likeliest; 1 at most.

    Returns:
        (rows, 1) ids.
    """
    if top_p >= 1:
        order, weights = None, probabilities
    else:
        weights, order = probabilities.topk(min(SORTED_TOKENS, probabilities.shape[-1]))
        if (weights.sum(-1) < top_p).any():
            weights, order = probabilities.sort(-1, descending=True)
        before = weights.cumsum(-1) - weights
        # The first token always: of a top_p of 0 the others are all behind it.
        is_first = torch.arange(weights.shape[-1], device=weights.device) == 0
        weights = weights.where((before < top_p) | is_first, 0.0)
    if min_p > 0:
        weights = weights.where(weights >= min_p * weights.amax(-1, keepdim=True), 0.0)
    below = weights.cumsum(-1)
    total = below[:, -1:].contiguous()
    # float32 makes 1 of a draw of nearly 1. It takes the last token that is left, not the last of all.
    last = torch.searchsorted(below, total)
    at = torch.searchsorted(below, draw * total, right=True).minimum(last)
    return at if order is None else order.gather(-1, at)


def is_past_deadline(deadline: float | None) -> bool:
    """Is it past a time of time.monotonic?"""
    return deadline is not None and time.monotonic() >= deadline


class _Deadline(StoppingCriteria):
    """Halts all rows at a time of time.monotonic."""

    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:
        is_over = is_past_deadline(self.deadline)
        return torch.full((len(input_ids),), is_over, dtype=torch.bool, device=input_ids.device)


class _HalfFinished(StoppingCriteria):
    """Halts a batch when half of it has ended: the others continue without those rows.

    Half, and not each row at once: every halt cuts the cache, which copies it.
    """

    def __init__(self, stops: list[int], report: Callable[[int], None]) -> None:
        self.stops, self.report = torch.tensor(stops), report
        self.has_ended: Any = False

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:
        # `has_ended` is kept, for `generate` fills rows that have ended with pads, which are no stops.
        ends_now = torch.isin(input_ids[:, -1], self.stops.to(input_ids.device))
        self.has_ended = ends_now | self.has_ended
        ended, rows = int(self.has_ended.sum()), len(input_ids)
        self.report(ended)
        # Where all have ended, `generate` halts by itself.
        is_half = rows <= 2 * ended < 2 * rows
        return torch.full((rows,), is_half, device=input_ids.device)


@dataclass
class _Row:
    """An answer that is being made."""

    draws: torch.Tensor
    """(limit,); empty where nothing is drawn"""
    ids: list[int] = field(default_factory=list)
    """So far, its stop token and pads behind it among them"""
    logprobs: list[float] = field(default_factory=list)

    def stop_place(self, stops: list[int]) -> int | None:
        """The index of the first stop token of an answer; None where it has none."""
        return next((at for at, id in enumerate(self.ids) if id in stops), None)


def decode_batch(
    model: Any, prompts: list[Ids], settings: BatchSettings, limit: int
) -> list[DecodedRow | None]:
    """Answer prompts together.

    Args:
        model: of transformers, in evaluation mode, with a plain generation_config.
        prompts: not empty.
        settings: how they are answered.
        limit: tokens of an answer, at most.

    Returns:
        One entry a prompt; None where the deadline cut it.
    """
    rows = [_new_row_with_draws(settings.sampling, prompt, limit) for prompt in prompts]
    remaining, inputs, cache = list(rows), _pad_left(model, prompts, settings.pad), None
    while remaining:
        # All rows that are left have as many: they have run together since the last halt.
        count = len(remaining[0].ids)
        processor = _sampling_processor_for_rows(settings.sampling, remaining, count)
        output = _call_generate(
            model,
            inputs,
            settings.pad,
            limit - count,
            eos_token_id=settings.stops or None,
            past_key_values=cache,
            stopping_criteria=_stopping_criteria(model, settings, len(rows) - len(remaining)),
            logits_processor=LogitsProcessorList([processor] if processor else []),
        )
        new = output.sequences[:, inputs["input_ids"].shape[1] :]
        _append_tokens(remaining, new, processor)
        left = [
            at
            for at, row in enumerate(remaining)
            if row.stop_place(settings.stops) is None and len(row.ids) < limit
        ]
        if not left or is_past_deadline(settings.deadline):
            break
        remaining = [remaining[at] for at in left]
        # Rows that continue have no pad behind them, so that all new places are tokens.
        mask = torch.cat([inputs["attention_mask"], torch.ones_like(new)], 1)
        inputs = {"input_ids": output.sequences[left], "attention_mask": mask[left]}
        cache = _select_cache_rows(output, left)
    # Also where the deadline came first: nothing more of this batch will come.
    settings.counter.report(len(rows))
    settings.counter.done += len(rows)
    return [_decoded_row_cut_at_stop(row, settings.stops, limit) for row in rows]


def next_logits(model: Any, rows: Sequence[Ids], pad: int) -> torch.Tensor:
    """(rows, vocabulary) logits behind each row, float32."""
    output = _call_generate(model, _pad_left(model, rows, pad), pad, 1, output_logits=True)
    logits: torch.Tensor = output.logits[0].float()
    return logits


def _new_row_with_draws(sampling: SamplingParams | None, prompt: Ids, limit: int) -> _Row:
    """The record of an answer that begins, with its numbers for drawing tokens where tokens are
    drawn.
    """
    return _Row(sampling.random_numbers_for_prompt(prompt, limit) if sampling else torch.empty(0))


def _sampling_processor_for_rows(
    sampling: SamplingParams | None, rows: list[_Row], count: int
) -> SamplingProcessor | None:
    """What chooses the tokens of rows that have `count` already; None where `generate` does."""
    if sampling is None:
        return None
    return SamplingProcessor(sampling, torch.stack([row.draws[count:] for row in rows]))


def _stopping_criteria(
    model: Any, settings: BatchSettings, ended_before: int
) -> StoppingCriteriaList:
    """What halts a batch of which `ended_before` rows have left."""
    criteria: list[StoppingCriteria] = [_Deadline(settings.deadline)]
    # A model that is no PreTrainedModel (PEFT's with a prompt of its own) puts tokens before the text, so that it can't
    # continue from a cache that was cut.
    if settings.stops and isinstance(model, PreTrainedModel):
        report = partial(settings.counter.report, ended_before)
        criteria.append(_HalfFinished(settings.stops, report))
    return StoppingCriteriaList(criteria)


def _append_tokens(
    rows: list[_Row], new: torch.Tensor, processor: SamplingProcessor | None
) -> None:
    """Add the tokens `new` (rows, steps) to their rows, and their log-probabilities."""
    logprobs: list[list[float]] = [[]] * len(rows)
    if processor is not None:
        logprobs = torch.stack(processor.logprobs[: new.shape[1]], 1).tolist()
    for row, ids, own in zip(rows, new.tolist(), logprobs, strict=True):
        row.ids += ids
        row.logprobs += own


def _call_generate(
    model: Any, inputs: Mapping[str, torch.Tensor], pad: int, limit: int, **settings: Any
) -> Any:
    """What `generate` of transformers gives for a batch: greedy, with a cache, as a dictionary.

    Args:
        model: of transformers.
        inputs: ids and attention mask, (rows, tokens) each.
        pad: fills rows that have ended.
        limit: new tokens.
        **settings: of GenerationConfig; those of GENERATE_ARGUMENTS are arguments of `generate` itself.
    """
    arguments = {name: settings.pop(name) for name in GENERATE_ARGUMENTS if name in settings}
    settings |= {
        "do_sample": False,
        "max_new_tokens": limit,
        "pad_token_id": pad,
        "use_cache": True,
        "return_dict_in_generate": True,
    }
    config: Any = GenerationConfig
    return model.generate(**inputs, **arguments, generation_config=config(**settings))


def _pad_left(model: Any, rows: Sequence[Ids], pad: int) -> dict[str, torch.Tensor]:
    """Ids and attention mask, (rows, longest), on the device of the model's embedding."""
    longest, device = max(map(len, rows)), model.get_input_embeddings().weight.device
    ids = [[pad] * (longest - len(row)) + list(row) for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return {
        "input_ids": torch.tensor(ids, device=device),
        "attention_mask": torch.tensor(mask, device=device),
    }


def _select_cache_rows(output: Any, rows: list[int]) -> Any:
    """The cache of some rows; None where its kind can't be parted, and must be made again."""
    cache = output.past_key_values
    layers = getattr(cache, "layers", [None])
    # Layers with a convolution's state (Mamba) have the method, and leave that state as it is.
    for layer in layers:
        if not hasattr(layer, "batch_select_indices") or hasattr(layer, "update_conv_state"):
            return None
    cache.batch_select_indices(torch.tensor(rows, device=output.sequences.device))
    return cache


def _decoded_row_cut_at_stop(row: _Row, stops: list[int], limit: int) -> DecodedRow | None:
    """The answer of a row, cut at its stop token; None where it has neither that nor all tokens:
    the deadline came first.
    """
    at = row.stop_place(stops)
    if at is None and len(row.ids) < limit:
        return None
    logprobs = row.logprobs[: None if at is None else at + 1]
    mean = sum(logprobs) / len(logprobs) if logprobs else None
    return DecodedRow(row.ids[:at], None if at is None else row.ids[at], mean)
