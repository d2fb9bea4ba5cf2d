"""The evidence on why a finished model answers as it does, which the rules on causes read.

`truetune sample --diagnose` asks the model, its base and their files a few things beside its answers; what it learned
is put down here, and rules read it (`checks/cause`). Each part is None or empty where it was not or could not be asked,
so that a rule can tell "no" from "not known".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from truetune.generation.answer_samples import SampledRun
from truetune.generation.backends.backend import GenerationSpeed
from truetune.generation.backends.model_source import SourceKind


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A control token."""

    text: str
    id: int

    def __str__(self) -> str:
        return f"{self.text} ({self.id})"


@dataclass(frozen=True, slots=True)
class StopEstimate:
    """What a model thinks of stopping behind the reference answers."""

    probability: float
    """P(any trained stop token), the median over the references"""
    rank: int
    """Of the likeliest of them, 0 = first; the median"""
    references: int


@dataclass(frozen=True, slots=True)
class TrainingEffect:
    """The same reference answers under a model and under its base."""

    # Exactly 0 is a proof, and a small number is not: an adapter that is on changes some bit of some number.
    difference: float
    """Mean of |difference| of the log-probabilities of a token, in nats; exactly 0 where nothing was applied"""
    model: float
    """Mean log-probability of a token, in nats"""
    base: float
    tokens: int
    error: float = 0.0
    """Standard error of the mean of the differences, in nats"""


@dataclass(frozen=True, slots=True)
class PromptGain:
    """What training has gained on the tokens of prompts, beside what it has gained on those of the references."""

    prompt: float
    """Nats/token by which the prompts are likelier than under the base"""
    reference: float
    """The same of the reference answers behind them"""
    error: float
    """Standard error of the first, over prompts"""
    tokens: int
    """Of the prompts"""
    prompts: int


@dataclass(frozen=True, slots=True)
class DivergentAnswer:
    """An answer that is another one where its prompt is asked alone."""

    question: str
    together: str
    alone: str
    token: int
    """Where they part, 0 = the first token"""
    # Batches round differently. Two tokens that are nearly alike may change places by that alone, which is no fault.
    nats: float | None
    """How much less likely the token of the batch is there than the other, asked alone; rounding moves near ties only.
    None where it can't be told"""


@dataclass(frozen=True)
class ModelEvidence:
    """What is known about a model besides its answers; what was not or can't be asked is None or empty."""

    watched: SampledRun
    """The answers of the finished model: one sampling pass"""
    base: SampledRun | None = None
    """Some of the same prompts under its base, where they were asked"""
    kind: SourceKind = "model"
    trained: tuple[ControlToken, ...] = ()
    """Stop tokens that its answers are trained to end with"""
    # What was recorded is a fact; what template and references suggest is likely.
    recorded: bool = False
    """The training record says so; else the template and the references do"""
    served: tuple[ControlToken, ...] = ()
    """Stop tokens at which its answers were ended"""
    pad: ControlToken | None = None
    stopping: StopEstimate | None = None
    base_stopping: StopEstimate | None = None
    run: bool = False
    """There is a record of the training."""
    contract: bool = False
    """There is a record of the prompts of the training."""
    prompts: tuple[str, ...] = ()
    """How the prompts differ from it, one text for each way"""
    effect: TrainingEffect | None = None
    # A prompt that has become as likely as the answers was trained, whatever the settings say.
    prompt_gain: PromptGain | None = None
    """None without a base, or where it is told of one prompt only"""
    reference_loss: float | None = None
    """Of reference answers under the model, in nats/token"""
    # Batches with padding are where answers go wrong unseen: left out masks, right padding.
    unbatched_prompts: int = 0
    """How many prompts were asked once more, each without a batch"""
    divergent_answers: tuple[DivergentAnswer, ...] = ()
    """Of these, the answers that are others than in the batch"""
    folder: Path | None = None
    """The files of the model or adapter"""
    base_folder: Path | None = None
    temperature: float = 0.0
    """At which the answers were drawn; 0: greedily"""
    greedy: SampledRun | None = None
    """Some of the same prompts, asked greedily, where the answers were drawn"""
    speed: GenerationSpeed | None = None
    """What a token costs"""
    notes: tuple[str, ...] = ()
    """What could not be asked, and why"""
