"""RolloutRun holds the first rollouts of a training by rewards, as its processes recorded them: what rules on rollouts
see.

The trade-off: a completion is found by its step and its row, and copied for no rule; a step holds some hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truetune.probe.rollout_step import LossPass, RolloutStep
from truetune.render.template_probes import Probes


@dataclass(frozen=True)
class Completion:
    """One completion of a step."""

    step: RolloutStep
    number: int
    """Of the step among those that were recorded, from 1"""
    row: int

    @property
    def place(self) -> str:
        """`rollout 1, completion 3`, with the rank where there are several"""
        process = f" of rank {self.step.rank}" if self.step.settings.processes > 1 else ""
        return f"rollout {self.number}, completion {self.row + 1}{process}"

    @property
    def ids(self) -> NDArray[np.integer]:
        """(tokens,) as they are trained, padding included"""
        return np.asarray(self.step.completion_ids[self.row])

    @property
    def in_loss(self) -> NDArray[np.bool_]:
        """(tokens,)"""
        return np.asarray(self.step.in_loss[self.row])

    @property
    def sampled(self) -> tuple[int, ...] | None:
        """What the sampler gave; None where it is not known"""
        return None if self.step.sampled_ids is None else self.step.sampled_ids[self.row]

    @property
    def places(self) -> NDArray[np.integer] | None:
        """Where in `ids` each token of the sampler stands, as far as `ids` reaches; None where that is not known"""
        if self.sampled is None:
            return None
        if self.step.sampled_places is not None:
            return np.asarray(self.step.sampled_places[self.row], np.int64)
        if self.step.from_tools is not None:
            return None
        return np.arange(min(len(self.sampled), len(self.ids)))

    @property
    def length(self) -> int | None:
        """Tokens without padding; None where it is not known"""
        return self.step.sampled_length(self.row)

    @property
    def is_cut(self) -> bool | None:
        """Was it cut before any stop of the sampler? None where it is not known."""
        stops = self.step.settings.sampler_stops
        if self.sampled is None or not stops or self.step.from_tools is not None:
            return None
        return not self.sampled or self.sampled[-1] not in stops


@dataclass(frozen=True)
class RolloutRun:
    """The first rollouts of a training."""

    steps: tuple[RolloutStep, ...]
    """Of each process in turn"""
    probes: Probes | None = None
    """The tokenizer and template of the run; None where there is none"""

    def completions(self) -> Iterator[Completion]:
        """All completions, step by step."""
        for number, step in self.numbered_steps():
            for row in range(step.rows):
                yield Completion(step, number, row)

    def numbered_steps(self) -> Iterator[tuple[int, RolloutStep]]:
        """The steps with their numbers, which begin at 1 in each process."""
        counts: dict[int, int] = {}
        for step in self.steps:
            counts[step.rank] = counts.get(step.rank, 0) + 1
            yield counts[step.rank], step

    def passes(self) -> Iterator[tuple[RolloutStep, LossPass]]:
        """All micro-batches with their steps."""
        for step in self.steps:
            for one in step.passes:
                yield step, one

    def text(self, ids: Sequence[int]) -> str:
        """Ids as text, as the tokenizer spells them; the numbers where there is none."""
        if self.probes is None:
            return " ".join(map(str, ids))
        spelled: str = self.probes.tokenizer.backend.decode(list(ids), skip_special_tokens=False)
        return spelled
