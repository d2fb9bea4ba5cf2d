"""Backend: whatever answers prompts, be it a model in this process, a server, vLLM or llama.cpp.

One interface for all, so that rules on answers judge them alike. Not every backend can tell everything: what it can't
is None, and a sentence in `notes`, and never a number that was made up. Only `answers` must be there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from truetune.generation.answer_samples import Answer, Prompt

Ids = Sequence[int]
Progress = Callable[[int, int], None]
"""Is told how many are done, of how many"""
# So that a length can be compared with it without a case for "not known".
UNKNOWN_POSITIONS = 1 << 30
"""Stands for the positions of a model whose config does not tell them"""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How answers are made."""

    stops: frozenset[int]
    """Ids that end an answer"""
    max_new_tokens: int = 256
    # Greedy by default: answers that are drawn differ from run to run, and a fault is seen in one run or not.
    temperature: float = 0.0
    """0: greedy"""
    top_p: float = 1.0
    """Drawn from the fewest likeliest tokens that hold this share; 1: all"""
    min_p: float = 0.0
    """Drawn from the tokens that are at least this share as likely as the likeliest; 0: all"""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ScoredIds:
    """What a model thinks of given ids."""

    logprobs: NDArray[np.float32]
    """(n,) log-probability of each in its place, given those before, in nats; nan for the first"""
    stop: NDArray[np.float32] | None = None
    """(n,) probability that any stop token stood in its place; nan for the first; None where it can't be told"""


@dataclass(frozen=True)
class GenerationSpeed:
    """Seconds a token of one greedy answer, generated with the settings that are saved with the model; on a CPU those
    that it computed."""

    short: float
    """Behind a short text"""
    long: float
    """Behind a long one"""
    lengths: tuple[int, int] = (8, 256)
    """Tokens of the two texts"""
    cached: bool | None = None
    """Keys and values of earlier tokens are kept; None where it can't be told"""
    batch: int = 1
    """Prompts of the longer length that are answered together"""
    beams: int = 1
    """num_beams of generation_config.json"""
    device: str = "cpu"
    unused: str | None = None
    """A GPU of this machine that the model is not on"""

    @property
    def long_to_short_text_time_ratio(self) -> float:
        """How many times as long the token behind the long text takes as that behind the short one."""
        # A clock that is too coarse says 0 of the short text: nothing is said of growth then.
        return self.long / self.short if self.short > 0 else 1.0


class Backend(ABC):
    """Answers prompts, and as far as it can, scores given ids. A context manager: `close` frees what it holds.

    Attributes:
        kind: transformers, server, vllm or llama.cpp.
        name: what was opened, for a reader.
        notes: what was asked for and is not done, refused or ignored, one sentence each.
        takes_min_p: heeds `Decoding.min_p`, or raises UsageError where it finds out that it can't.
    """

    kind: str
    name: str
    # Off by default: a plug-in that was written before there was a min_p would draw from all tokens without a word.
    takes_min_p: bool = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []

    # The one thing that every backend can do. The others have a default, so that a new backend is one function.
    @abstractmethod
    def answers(
        self, prompts: Sequence[Prompt], decoding: Decoding, progress: Progress | None = None
    ) -> list[Answer | None]:
        """Answer prompts.

        Args:
            prompts: as they will be served.
            decoding: how the answers are made.
            progress: is told how many are done.

        Returns:
            One answer to each prompt, with what the model thinks of stopping behind the reference where it can be told;
            None, and a note, where a prompt gets none.

        Raises:
            UsageError: where nothing answers at all.
        """

    def score(
        self,
        sequences: Sequence[Ids],
        stops: frozenset[int] = frozenset(),
        progress: Progress | None = None,
    ) -> list[ScoredIds] | None:
        """Score given ids, teacher-forced.

        Args:
            sequences: each behind nothing.
            stops: ids whose probability is told as well.
            progress: is told how many are done.

        Returns:
            One entry a sequence; None where this backend can't tell them.
        """
        return None

    def likeliest(self, prefixes: Sequence[Ids], count: int) -> list[dict[int, float]] | None:
        """The `count` likeliest next tokens behind each prefix: id -> log-probability in nats; a server may give fewer.

        None where this backend can't tell them.
        """
        return None

    def pace(self) -> GenerationSpeed | None:
        """What a token costs behind a short and behind a long text, in seconds; None where the
        model is not in this process, or has not the room.
        """
        return None

    def close(self) -> None:  # noqa: B027
        """Free what the backend holds."""

    # Engines hold gigabytes and processes: `with` frees them where a report fails, too.
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
