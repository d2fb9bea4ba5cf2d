"""The two sides of pairs, as the rules of this station look at them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.fingerprint import text_of
from truetune.spec.run import RunSpec

DEFAULT = 1024
"""TRL's max_length for DPO and KTO where a run sets none"""


class Limit(NamedTuple):
    """Where a trainer cuts a sequence."""

    tokens: int
    from_end: bool
    """The beginning goes, not the end (TRL's truncation_mode keep_end)."""
    said: str
    """As it stands in messages"""


class Texts(NamedTuple):
    """The strings of a pair."""

    prompt: str
    """What is asked last"""
    chosen: str
    rejected: str


def limit_of(spec: RunSpec) -> Limit:
    """The limit of a run, TRL's default where it sets none."""
    from_end = spec.training.other.get("truncation_mode") == "keep_end"
    if spec.max_length is None:
        return Limit(DEFAULT, from_end, f"{DEFAULT:,} tokens (TRL's default; no max_length is set)")
    return Limit(spec.max_length, from_end, f"{spec.max_length:,} tokens")


def completions(side: Batch) -> Iterator[NDArray[np.int32]]:
    """The ids of each example from its first supervised token on."""
    for start, end in zip(
        (side.offsets[:-1] + side.contexts).tolist(), side.offsets[1:].tolist(), strict=True
    ):
        yield side.ids[start:end]


def cut(ids: NDArray[np.int32], context: int, limit: Limit) -> NDArray[np.int32]:
    """What is left of a completion behind a prompt of `context` tokens."""
    return ids[-limit.tokens :] if limit.from_end else ids[: max(limit.tokens - context, 0)]


def texts_of(row: Conversation) -> Texts:
    """The question and the two answers of a pair."""
    if not isinstance(row.rejected, list):
        return Texts(row.prompt or "", row.completion or "", row.rejected or "")
    head = row.messages[: row.prompt_messages]
    asked = next((m for m in reversed(head) if m.get("role") == "user"), {})
    chosen = row.messages[row.prompt_messages or 0 :]
    return Texts(text_of(asked.get("content")), _said(chosen), _said(row.rejected))


def _said(messages: list[dict[str, Any]]) -> str:
    """What the assistant says, and calls."""
    mine = [message for message in messages if message.get("role") == "assistant"]
    return "\n".join(
        text_of(message.get("content")) + text_of(message.get("tool_calls")) for message in mine
    )


def wilson(hits: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson score interval of a share (Wilson 1927), for 95 % by default."""
    if not of:
        return 0.0, 1.0
    share, square = hits / of, z * z / of
    half = z * math.sqrt(share * (1 - share) / of + square / (4 * of)) / (1 + square)
    centre = (share + square / 2) / (1 + square)
    return max(centre - half, 0.0), min(centre + half, 1.0)
