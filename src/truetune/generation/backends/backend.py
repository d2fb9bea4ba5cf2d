"""Backend: whatever answers prompts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.pace import GenerationSpeed

Ids = Sequence[int]
Progress = Callable[[int, int], None]
"""Is told how many are done, of how many"""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How answers are made."""

    stops: frozenset[int]
    """Ids that end an answer"""
    max_new_tokens: int = 256
    temperature: float = 0.0
    """0: greedy"""
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ScoredIds:
    """What a model thinks of given ids."""

    logprobs: NDArray[np.float32]
    """(n,) log-probability of each in its place, given those before, in nats; nan for the first"""
    stop: NDArray[np.float32] | None = None
    """(n,) probability that any stop token stood in its place; nan for the first; None where it can't be told"""


class Backend(ABC):
    """Answers prompts, and as far as it can, scores given ids. A context manager: `close` frees what it holds."""

    kind: str
    """transformers, server, vllm or llama.cpp"""
    name: str
    """What was opened, for a reader"""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []
        """What was asked for and is not done, refused or ignored, one sentence each"""

    @abstractmethod
    def answers(
        self, prompts: Sequence[Prompt], decoding: Decoding, progress: Progress | None = None
    ) -> list[Answer | None]:
        """One answer to each prompt, with what the model thinks of stopping behind the reference where it can be told;
        None, and a note, where a prompt gets none. Raises UsageError where nothing answers at all.
        """

    def score(
        self,
        sequences: Sequence[Ids],
        stops: frozenset[int] = frozenset(),
        progress: Progress | None = None,
    ) -> list[ScoredIds] | None:
        """Teacher-forced log-probabilities; None where this backend can't tell them."""
        return None

    def likeliest(self, prefixes: Sequence[Ids], count: int) -> list[dict[int, float]] | None:
        """The `count` likeliest next ids behind each prefix (the server may give fewer) with their log-probabilities
        in nats; None where this backend can't tell them."""
        return None

    def pace(self) -> GenerationSpeed | None:
        """What a token costs behind a short and behind a long text; None where the model is not in this process."""
        return None

    def close(self) -> None:  # noqa: B027
        """Free what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
