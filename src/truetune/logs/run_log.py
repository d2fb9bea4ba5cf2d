"""RunLog: what one run logged, as curves by the names of transformers, with its settings and its
console output.

It is what rules on logs look at. All readers give this one form, so that a rule never asks which tracker wrote a log.
Values stay as they were logged (NaN and infinities too): what is not finite is a finding, and a reader that drops it
would hide the fault.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.logs.console.read_console_output import ConsoleOutput
from truetune.logs.facts_in_files_beside_log import NOTHING_BESIDE, FilesBeside

if TYPE_CHECKING:
    from truetune.logs.rows_and_steps_of_sibling_runs import RunSize

Floats = NDArray[np.float64]
TrainingKind = Literal["language", "preference", "reward", "reinforcement"]
TOKEN_LOSS_CLASS = re.compile(r"(LM|LMHeadModel|LMModel|ConditionalGeneration|PreTraining)$")
"""How classes of transformers are named whose loss is that of predicting tokens"""


NEAR_THE_END = 0.9
"""Share of a run's epochs at which the last record stands. Chosen, not measured: loggers record each tenth step"""
PREFERENCE_CURVES = ("rewards/margins", "rewards/accuracies", "rewards/chosen", "logps/chosen")
"""What trainers of preference losses (DPO and its kin) log"""
SAMPLER_CURVES = ("mismatch_kl/mean", "gen_kl_error", "advantages/max", "critic/advantages/max")
"""What only trainers log that learn from sampled answers: prime-rl's trainer writes no reward, its orchestrator does"""


class Curve(NamedTuple):
    """One logged quantity."""

    step: Floats
    """(points,) ascending"""
    value: Floats
    """(points,) as logged: NaN and infinities stay"""

    def __bool__(self) -> bool:
        return bool(self.step.size)

    def finite(self) -> Curve:
        """The points whose value is finite."""
        keep = np.isfinite(self.value)
        return Curve(self.step[keep], self.value[keep])

    def at(self, step: float | Floats) -> Floats:
        """The last value logged at or before each of these steps; the first where there is none."""
        return self.value[np.maximum(np.searchsorted(self.step, step, side="right") - 1, 0)]


EMPTY_CURVE = Curve(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True)
class DataFacts:
    """What the training data say about the losses that are possible."""

    rows: int
    examples: int
    supervised: int
    """supervised tokens"""
    unigram: float
    """Nats/token: entropy of the supervised tokens, the loss of a model that knows only how frequent they are"""
    answer: float
    """Nats/token: entropy of whole answers over their mean length, the loss of a model that never reads the prompt
    and knows the answers by heart"""
    commonest: float
    """Share of the examples that have the most common answer"""
    vocabulary: int | None = None


@dataclass(frozen=True, slots=True)
class RunLog:
    """What a run logged.

    Names are those of transformers: `loss`, `eval_loss`, `learning_rate`, `grad_norm`, `epoch`, `num_tokens`,
    `rewards/chosen`, `logps/chosen`; other quantities keep their own.
    """

    path: str
    format: str
    """Who wrote it: `transformers`, `TensorBoard`, `JSONL`, ..."""
    files: tuple[str, ...] = ()
    parts: tuple[Mapping[str, Curve], ...] = ()
    """The curves of each process that wrote it: a resumed run has several"""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """The curves of the whole: where two parts overlap, the later one holds"""
    facts: Mapping[str, object] = field(default_factory=dict)
    """Settings and results that stand in the log, by the names of transformers (`max_steps`, `best_metric`)"""
    checkpoints: tuple[int, ...] = ()
    """Steps of the checkpoints beside it"""
    notes: tuple[str, ...] = ()
    """What could not be read, with counts"""
    is_numbered: bool = False
    """Its records say no step: those of the curves count records"""
    data: DataFacts | None = None
    beside: tuple[RunSize, ...] = ()
    """Other runs in the folders beside it"""
    files_beside: FilesBeside = NOTHING_BESIDE
    """What scripts, settings and other logs say that were given with it"""
    output: ConsoleOutput | None = None
    """What the console output shows besides records; None where none was read"""
    program: str = ""
    """What trains by rewards and names its quantities so: `verl`, `prime-rl`, ...; empty: TRL, or it is not known"""

    def curve(self, name: str) -> Curve:
        """The curve of that name; an empty one where it was not logged."""
        return self.curves.get(name, EMPTY_CURVE)

    def fact_as_number(self, name: str) -> float | None:
        """A fact as a number; None where it is not known."""
        value = self.facts.get(name)
        # Python's True is an int
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value)

    @property
    def unit_of_steps(self) -> str:
        """What the steps of its curves count: `step`, or `record` if no step was logged."""
        return "record" if self.is_numbered else "step"

    @property
    def kind(self) -> TrainingKind:
        """The kind of training (SFT, preference, reward, ...), by what was logged: it decides what
        a loss means.
        """
        # The order matters: OnlineDPO logs margins as well, of answers that it has just generated.
        prefixes = ("completions/", "objective/")
        if any(name == "reward" or name.startswith(prefixes) for name in self.curves):
            return "reinforcement"
        if not self.curves.keys().isdisjoint(SAMPLER_CURVES):
            return "reinforcement"
        if not self.curves.keys().isdisjoint(PREFERENCE_CURVES):
            return "preference"
        return "reward" if {"min_reward", "max_reward"} <= self.curves.keys() else "language"

    @property
    def is_loss_of_token_prediction(self) -> bool:
        """Is the loss that of predicting tokens? If config.json names no class, a loss without
        rewards is.
        """
        classes = self.facts.get("architectures")
        if self.kind != "language":
            return False
        listed = classes if isinstance(classes, list) else []
        named = [name for name in listed if isinstance(name, str)]
        # most logs stand alone, without a config.json: then what was logged decides
        return not named or any(TOKEN_LOSS_CLASS.search(name) for name in named)

    @property
    def inference_server_name(self) -> str:
        """The inference server whose log this is; empty for a training (which may hold an engine)."""
        if self.output is None or self.curve("loss") or self.curve("reward"):
            return ""
        return self.output.settings.server

    @property
    def last_step(self) -> float:
        """The last step of any curve; 0 where nothing was logged."""
        return max((float(curve.step[-1]) for curve in self.curves.values() if curve), default=0.0)

    @property
    def done_steps(self) -> float:
        """The number of steps that were made: a trainer's state counts those after the last record
        as well.
        """
        return max(
            self.last_step,
            min(self.fact_as_number("global_step") or 0.0, self.planned_steps or 0.0),
        )

    @property
    def planned_steps(self) -> float | None:
        """The number of steps that were planned; None if the log does not say."""
        planned = self.fact_as_number("max_steps")
        return planned if planned and planned > 0 else None

    @property
    def epochs_at_end(self) -> float:
        """Epochs at the end; 0 where they were not logged."""
        curve = self.curve("epoch").finite()
        if not curve:
            return 0.0
        last = float(curve.value.max())
        # Loops of one's own write the number of the epoch, from 0: 0 0 0 1 1 1 are two epochs.
        numbers = np.unique(curve.value)
        counts_from_zero = np.array_equal(numbers, np.arange(numbers.size))
        is_repeated = curve.value.size >= 2 * numbers.size and numbers.size > 1
        if counts_from_zero and is_repeated:
            return last + 1
        # The summary stands after the last record; of an excerpt, whose records end far before it, they alone count.
        end = self.fact_as_number("epoch") or 0.0
        return max(last, end) if last >= NEAR_THE_END * end else last

    def epoch_at(self, step: float | Floats) -> Floats:
        """The epoch at these steps, interpolated linearly between the logged ones."""
        curve = self.curve("epoch").finite()
        at = np.asarray(step, dtype=np.float64)
        return np.asarray(np.interp(at, curve.step, curve.value)) if curve else np.zeros_like(at)


def checkpoint_step(path: Path) -> int | None:
    """The step in the name of a folder `checkpoint-N`; None where it is no such folder."""
    head, _, number = path.name.rpartition("-")
    return (
        int(number)
        if head in ("checkpoint", "global_step", "step") and number.isdecimal()
        else None
    )
