"""Answers the prompts of a run with the model that is trained, and reads and scores the answers.

Answers are greedy and made by our own loop (`generation.generate_answers`), so that the stop tokens and probabilities
are known and no generation config of the model changes what is compared over time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import Any

import torch

from truetune.generation.answer_parsers_named_by_user import Parser, make_parser
from truetune.generation.answer_samples import Answer, Prompt, Sample
from truetune.generation.generate_answers import generate_answers, restore_modules
from truetune.generation.score_answer_by_prompt_and_reference import score_answer
from truetune.probe.restore_state_changed_by_observing_run import preserve_state
from truetune.training.watch.exchange_between_sampling_processes import gather_outer_fsdp_weights
from truetune.training.watch.sampling_pass_size_and_schedule import PassCosts

# Chosen, not measured: the difference of 6 tokens and 1 is the time of 5, which averages out
# jitter; more would cost a part of the pass that is being planned.
PROBE_TOKENS = 6
"""That are generated to see what one costs"""


@dataclass(frozen=True)
class AnswerSampler:
    """Answers prompts greedily, and reads and scores the answers."""

    stops: tuple[int, ...]
    pad: int
    decode: Callable[[Sequence[int]], str]
    control: frozenset[str]
    """Control tokens, as text"""
    parse: Parser | None

    def answer_prompts_greedily(
        self, model: Any, prompts: Sequence[Prompt], limit: int, deadline: float
    ) -> list[Answer | None]:
        """Answer some prompts greedily.

        Args:
            model: left as it is.
            prompts: any number.
            limit: new tokens of each.
            deadline: by `time.monotonic`; what is not answered then is None.
        """
        if not prompts:
            return []
        with gather_outer_fsdp_weights(model):
            return generate_answers(
                model,
                prompts,
                stops=self.stops,
                pad=self.pad,
                max_new_tokens=limit,
                decode=self.decode,
                deadline=deadline,
            )

    def score(self, prompt: Prompt, answer: Answer) -> Sample:
        """An answer read by the parser, with its scores."""
        return Sample(
            prompt, answer, score_answer(prompt, answer, control=self.control, parse=self.parse)
        )


def make_answer_sampler(tokenizer: Any, stops: Sequence[int], parser: str | None) -> AnswerSampler:
    """Make an answer sampler by a tokenizer of transformers. Raises UsageError for a parser that there is none of."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    control = {*tokenizer.all_special_tokens, *(token.content for token in added if token.special)}
    # A pad is masked by its place, so that any valid id will do.
    pad = min(stops) if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    return AnswerSampler(
        stops=tuple(sorted(set(stops))),
        pad=pad,
        decode=lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)),
        control=frozenset(control),
        parse=make_parser(parser) if parser else None,
    )


def measure_row_and_token_costs(
    sampler: AnswerSampler, model: Any, prompts: Sequence[Prompt]
) -> PassCosts:
    """What a row and a new token cost: two forward passes, and a few tokens behind the last one of each prompt."""
    lengths = [len(prompt.ids) + len(prompt.reference_ids) for prompt in prompts]
    middle, read = int(median(lengths)), sum(lengths) + sum(len(prompt.ids) for prompt in prompts)
    with restore_modules(model), preserve_state(), torch.no_grad():
        model.eval()
        # The faster of two: the first one allocates and compiles.
        row = min(_time_forward_pass(model, middle) for _ in range(2))
    # The last token alone as a prompt: what is timed is the cost of a token, not of reading.
    ends = [replace(prompt, ids=prompt.ids[-1:], reference_ids=()) for prompt in prompts]
    _, (one, first), (several, last) = (
        _longest_answer_and_seconds(sampler, model, ends, tokens) for tokens in (1, 1, PROBE_TOKENS)
    )
    # Where all answers ended at once, the whole time counts as one token's: too much, and on the
    # safe side.
    token = (last - first) / (several - one) if several > one else last
    return PassCosts(row, row * read / middle / len(prompts), max(token, 0.0))


def _time_forward_pass(model: Any, tokens: int) -> float:
    """Seconds of a forward pass over a row; reading one number waits for the device."""
    # Any ids take the same time.
    ids = torch.zeros((1, tokens), dtype=torch.long, device=next(model.parameters()).device)
    started = time.perf_counter()
    model(input_ids=ids, use_cache=False).logits[0, -1, 0].item()
    return time.perf_counter() - started


def _longest_answer_and_seconds(
    sampler: AnswerSampler, model: Any, prompts: Sequence[Prompt], limit: int
) -> tuple[int, float]:
    """(tokens of the longest answer with its stop token, seconds) of answering some prompts."""
    started = time.perf_counter()
    answers = sampler.answer_prompts_greedily(model, prompts, limit, inf)
    tokens = max(
        len(answer.ids) + (answer.stop is not None) for answer in answers if answer is not None
    )
    return tokens, time.perf_counter() - started
