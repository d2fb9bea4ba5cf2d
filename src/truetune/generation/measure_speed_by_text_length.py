"""Measure what a token of a model costs behind a short and a long text, as its saved settings generate it.

A token that takes longer behind a long text tells that keys and values are computed again each time (`use_cache: false`
in a saved config). The settings that are saved with the model are what its users run, so they are kept here, other than
where answers are judged; only what would end the text or draw numbers is taken out.
"""

from __future__ import annotations

import copy
import time
from itertools import pairwise
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from truetune.generation.backends.backend import GenerationSpeed
from truetune.generation.generate_answers import restore_modules, unwrap_to_model_with_generate
from truetune.probe.restore_state_changed_by_observing_run import preserve_state

# Chosen, not measured: without a cache a token behind the second costs up to 32 times as much; still longer ones
# would take the time of a whole answer.
TEXT_LENGTHS = (8, 256)
"""Tokens of the two texts"""
MIN_LENGTH_RATIO = 4
"""The longer text is so many times as long at least, or nothing is told: with fewer positions no growth shows"""
TIMED_TOKENS = 4
"""That are timed at each length, behind one that is not: the first reads the whole text"""
MAX_TRIES = 3
"""How often it is measured where there is a cache and the longer text takes `SUSPECT_GROWTH` times as long"""
SUSPECT_GROWTH = 2.0
"""Growth that a model with a cache should not have: a neighbour of this machine may have come between"""


def measure_speed(wrapped: Any, batch_tokens: int) -> GenerationSpeed | None:
    """Time a few tokens behind 8 and behind 256.

    Args:
        wrapped: a model of transformers, be it wrapped; it is as before afterwards.
        batch_tokens: what a batch has at most.

    Returns:
        The fastest measurement; None where the model has not the room.
    """
    model = unwrap_to_model_with_generate(wrapped)
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    short_length, long_length = TEXT_LENGTHS
    if positions:
        long_length = min(long_length, positions - TIMED_TOKENS - 1)
    if long_length <= MIN_LENGTH_RATIO * short_length:
        return None
    with restore_modules(wrapped), preserve_state(), torch.no_grad():
        model.eval()
        # Not timed: the first call of all compiles kernels and allocates.
        _time_tokens_and_see_cache(model, short_length)
        short, long, has_cache = _time_both_and_see_cache(model, short_length, long_length)
        for _ in range(MAX_TRIES - 1):
            if not has_cache or long / short < SUSPECT_GROWTH:
                break
            other_short, other_long, has_cache = _time_both_and_see_cache(
                model, short_length, long_length
            )
            if other_long / other_short < long / short:
                short, long = other_short, other_long
    has_unused_gpu = torch.cuda.is_available() and model.device.type == "cpu"
    return GenerationSpeed(
        short,
        long,
        (short_length, long_length),
        has_cache,
        batch=max(1, batch_tokens // long_length),
        beams=model.generation_config.num_beams or 1,
        device=model.device.type,
        unused=torch.cuda.get_device_name() if has_unused_gpu else None,
    )


class _Clock(StoppingCriteria):
    """Notes when each token is there; on a CPU by the time that this process has computed, for it has neighbours."""

    def __init__(self, device: torch.device) -> None:
        self.now = time.process_time if device.type == "cpu" else time.perf_counter
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:
        # A GPU computes behind Python's back: reading the token waits for it.
        input_ids[0, -1].item()
        self.times.append(self.now())
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def _time_both_and_see_cache(
    model: Any, short_length: int, long_length: int
) -> tuple[float, float, bool]:
    """Seconds a token behind each of the two texts, and whether a cache is kept."""
    short, has_cache = _time_tokens_and_see_cache(model, short_length)
    long, _ = _time_tokens_and_see_cache(model, long_length)
    return short, long, has_cache


def _time_tokens_and_see_cache(model: Any, length: int) -> tuple[float, bool]:
    """Seconds of a token behind so many, the fastest of a few; and whether a cache is kept."""
    settings = copy.deepcopy(model.generation_config)
    settings.update(
        max_new_tokens=TIMED_TOKENS + 1,
        min_new_tokens=TIMED_TOKENS + 1,
        do_sample=False,
        eos_token_id=None,
        max_length=None,
        pad_token_id=0,
        return_dict_in_generate=True,
    )
    ids = torch.ones((1, length), dtype=torch.long, device=model.device)
    clock = _Clock(model.device)
    output = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        generation_config=settings,
        stopping_criteria=StoppingCriteriaList([clock]),
    )
    fastest = min(later - earlier for earlier, later in pairwise(clock.times))
    return fastest, output.past_key_values is not None
