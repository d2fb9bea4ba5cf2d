"""The reward of the section `grpo`: it pays answers of one model differently, whatever the model has learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def early_letters(completions: Sequence[Any], **columns: Any) -> list[float | None]:
    """Of each answer the share of characters that are before n in the alphabet; 0 for an empty one."""
    texts = [completion[0]["content"] for completion in completions]
    return [sum(letter < "n" for letter in text) / max(len(text), 1) for text in texts]
