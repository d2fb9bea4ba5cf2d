"""Pacing: measure what a token of a model costs, as its saved settings generate it."""

from __future__ import annotations

import copy
import time
from itertools import pairwise
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from truetune.generation.generate_answers import generating_model, restore_modules
from truetune.generation.pace import GenerationSpeed
from truetune.probe.preserve_state import preserve_state

LENGTHS = (8, 256)
TOKENS = 4
"""That are timed at each length, behind one that is not"""
TRIES, DOUBTFUL = 3, 2.0
"""How often it is measured where there is a cache and the longer text takes so many times as long: a neighbour may have
come between"""


def measure_speed(wrapped: Any, batch_tokens: int) -> GenerationSpeed | None:
    """A few tokens behind 8 and behind 256; None where the model has not the room. `batch_tokens` is what a batch has
    at most."""
    model = generating_model(wrapped)
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    lengths = LENGTHS[0], min(LENGTHS[1], (positions or LENGTHS[1] + TOKENS + 1) - TOKENS - 1)
    if lengths[1] <= 4 * lengths[0]:
        return None
    with restore_modules(wrapped), preserve_state(), torch.no_grad():
        model.eval()
        _time_tokens(model, LENGTHS[0])
        tries: list[tuple[float, float]] = []
        cached = True
        while not tries or (
            cached and len(tries) < TRIES and min(long / short for short, long in tries) >= DOUBTFUL
        ):
            (short, cached), (long, _) = (_time_tokens(model, length) for length in lengths)
            tries.append((short, long))
    short, long = min(tries, key=lambda pair: pair[1] / pair[0])
    unused = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available() and model.device.type == "cpu"
        else None
    )
    return GenerationSpeed(
        short,
        long,
        lengths,
        cached,
        batch=max(1, batch_tokens // lengths[1]),
        beams=model.generation_config.num_beams or 1,
        device=model.device.type,
        unused=unused,
    )


class _Clock(StoppingCriteria):
    """Notes when each token is there; on a CPU by the time that this process has computed, for it has neighbours."""

    def __init__(self, device: torch.device) -> None:
        self.now = time.process_time if device.type == "cpu" else time.perf_counter
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:
        input_ids[0, -1].item()
        self.times.append(self.now())
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def _time_tokens(model: Any, length: int) -> tuple[float, bool]:
    """A token behind so many, as the saved settings make it, the fastest of a few; and whether a cache is kept."""
    settings = copy.deepcopy(model.generation_config)
    settings.update(
        max_new_tokens=TOKENS + 1,
        min_new_tokens=TOKENS + 1,
        do_sample=False,
        eos_token_id=None,
        max_length=None,
        pad_token_id=0,
        return_dict_in_generate=True,
    )
    ids, clock = (
        torch.ones((1, length), dtype=torch.long, device=model.device),
        _Clock(model.device),
    )
    made = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        generation_config=settings,
        stopping_criteria=StoppingCriteriaList([clock]),
    )
    return min(b - a for a, b in pairwise(clock.times)), made.past_key_values is not None
