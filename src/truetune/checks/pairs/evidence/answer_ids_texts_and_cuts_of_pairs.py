"""The two sides of pairs: the ids of their answers, their texts, and where a trainer cuts them.

Rules that count tokens take the ids as they were encoded; rules on what an answer says take the strings of the row,
which are the same under every tokenizer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of
from truetune.settings.run_spec import RunSpec
from truetune.trainers.trainer_fact_types import UNKNOWN, TrainerFacts

DEFAULT_MAX_LENGTH = 1024
"""TRL's max_length for DPO and KTO where a run sets none"""

PAIRS_PREPARED_BY_TRL = (None, "trl", "unsloth", "transformers")
"""Trainers whose pairs TRL cuts: Unsloth patches TRL's, and transformers has none for pairs"""


class PairLimit(NamedTuple):
    """Where a trainer cuts a sequence."""

    tokens: int
    from_end: bool
    """The beginning goes, not the end (TRL's truncation_mode keep_end)."""
    text: str
    """As it stands in messages"""


class PairTexts(NamedTuple):
    """The strings of a pair."""

    prompt: str
    """What is asked last"""
    chosen: str
    rejected: str


def pair_length_limit(spec: RunSpec, trainer: TrainerFacts = UNKNOWN) -> PairLimit:
    """The limit of a run; its trainer's default where it sets none.

    Pairs are judged without a trainer's name too, by TRL's default: nearly all stacks for DPO hand their rows to TRL.
    Those with a limit of their own cut pairs at the same default as other rows.
    """
    from_end = spec.training.other.get("truncation_mode") == "keep_end"
    if spec.max_length is not None:
        return PairLimit(spec.max_length, from_end, f"{spec.max_length:,} tokens")
    cut = trainer.cut.value
    tokens, owner, setting = DEFAULT_MAX_LENGTH, "TRL", "max_length"
    if trainer.name not in PAIRS_PREPARED_BY_TRL and cut.limit is not None:
        tokens, owner, setting = cut.limit, trainer.family.partition(" {")[0], cut.setting
    return PairLimit(
        tokens, from_end, f"{tokens:,} tokens ({owner}'s default; no {setting} is set)"
    )


def completion_ids(side: Batch) -> Iterator[NDArray[np.int32]]:
    """The ids of each example from its first supervised token on."""
    for start, end in zip(
        (side.offsets[:-1] + side.contexts).tolist(), side.offsets[1:].tolist(), strict=True
    ):
        yield side.ids[start:end]


def cut_completion(ids: NDArray[np.int32], context: int, limit: PairLimit) -> NDArray[np.int32]:
    """What is left of a completion behind a prompt of `context` tokens.

    Args:
        ids: the completion, without its prompt.
        context: tokens of the prompt, which count towards the limit.
        limit: where the trainer cuts, and from which end.
    """
    # From the end, prompt and completion are one sequence whose last tokens stay: the prompt goes
    # first.
    return ids[-limit.tokens :] if limit.from_end else ids[: max(limit.tokens - context, 0)]


def pair_texts(row: Conversation) -> PairTexts:
    """The question and the two answers of a pair."""
    if not isinstance(row.rejected, list):
        return PairTexts(row.prompt or "", row.completion or "", row.rejected or "")
    head = row.messages[: row.prompt_messages]
    question = next((m for m in reversed(head) if m.get("role") == "user"), {})
    chosen = row.messages[row.prompt_messages or 0 :]
    return PairTexts(
        text_of(question.get("content")),
        _text_and_calls_of_assistant(chosen),
        _text_and_calls_of_assistant(row.rejected),
    )


def _text_and_calls_of_assistant(messages: list[dict[str, Any]]) -> str:
    """What the assistant says, and calls."""
    turns = [message for message in messages if message.get("role") == "assistant"]
    return "\n".join(
        text_of(message.get("content")) + text_of(message.get("tool_calls")) for message in turns
    )


def wilson_interval(hits: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson score interval of a share (Wilson 1927), for 95 % by default.

    Evaluations have their own in a later layer, with any confidence; rules may not import from there.

    Returns:
        Its lower and upper end; (0, 1) of nothing, where nothing is known.
    """
    if not of:
        return 0.0, 1.0
    share, square = hits / of, z * z / of
    half = z * math.sqrt(share * (1 - share) / of + square / (4 * of)) / (1 + square)
    centre = (share + square / 2) / (1 + square)
    return max(centre - half, 0.0), min(centre + half, 1.0)
