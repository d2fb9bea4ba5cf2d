"""The losses and scores of a finished model on rows of data: the subject of the rules on them.

`truetune evaluate` makes it, `checks/evaluation` judges it, the report draws it. Means come with an interval over rows
and not over tokens: tokens of one row are no independent observations, and an interval over them is too narrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp

from truetune.data.llm_judge_verdicts_and_bias import JudgedPair
from truetune.generation.parser_selftest_results import ParserSelftest

ALL_TOKENS = "all"
FIRST_TOKEN = "first token"
MAX_EXPONENT = 700.0
"""Just below that of the largest float, 709.78"""


@dataclass(frozen=True, slots=True)
class MeanLoss:
    """The mean loss of one kind of token."""

    source: str
    """A name of Source.label, `FIRST_TOKEN` of an answer, or `ALL_TOKENS`, which counts each token once"""
    tokens: int
    rows: int
    mean: float
    """Nats/token"""
    # From a bootstrap over rows: of one row there is nothing to draw.
    low: float | None = None
    high: float | None = None
    """Where the mean lies, over rows; None of one row"""

    @property
    def perplexity(self) -> float:
        """e to the mean loss; without overflow for a model that is broken (e^710 is no float)."""
        return exp(min(self.mean, MAX_EXPONENT))


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Places of like P(stop)."""

    low: float
    high: float
    places: int
    mean: float
    """P(stop), on average"""
    ends: int
    """Places where the answer does end"""


@dataclass(frozen=True, slots=True)
class StopCalibration:
    """P(stop), of any token that serving stops at, where reference answers end and inside of them."""

    ends: int
    rows: int
    mean: float
    median: float
    likely: int
    """Ends where a stop is likelier than everything else together"""
    inside: int
    """Places inside answers"""
    inside_mean: float
    false: int
    """Places inside where a stop is likelier than everything else together"""
    largest: float
    """The largest P(stop) inside; 0 where there is no such place"""
    expected: float
    """Stops that the model expects at all places, for each that is there: 1 of a calibrated model"""
    low: float | None
    high: float | None
    """Where `expected` lies, over rows"""
    error: float
    """Expected calibration error over `bins`"""
    bins: tuple[CalibrationBin, ...] = ()
    # Apart from P(stop): a model may end its answers rightly, with a token that no server heeds.
    unserved: Mapping[str, int] = field(default_factory=dict)
    """Tokens that end answers in the data and that serving does not stop at, and how many ends they are"""


@dataclass(frozen=True, slots=True)
class ModelMeasurements:
    """One model on the rows."""

    name: str
    losses: tuple[MeanLoss, ...] = ()
    """Empty where they can't be told"""
    stops: StopCalibration | None = None

    def mean_loss_of_token_kind(self, source: str = ALL_TOKENS) -> MeanLoss | None:
        """The loss of one kind of token; None where it is not known."""
        return next((loss for loss in self.losses if loss.source == source), None)


@dataclass(frozen=True, slots=True)
class LossChange:
    """The loss of this model less that of the other, over the same rows."""

    source: str
    rows: int
    difference: float
    """Nats/token; below 0: this model is better"""
    low: float | None
    high: float | None
    p: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Which of two models' answers are right, prompt by prompt."""

    measure: str
    """What `right` is: `read by json`, `stops by itself`, ..."""
    both: int
    only_this: int
    only_other: int
    neither: int
    p: float
    """McNemar's, exact"""


@dataclass(frozen=True, slots=True)
class TrainedRows:
    """Rows that the model was trained on, apart from the others."""

    rows: int
    of: int
    seen: MeanLoss | None = None
    unseen: MeanLoss | None = None
    example: tuple[str, int] | None = None
    """File and line of one of them"""


@dataclass(frozen=True, slots=True)
class EqualAnswers:
    """How many answers of two models to the same questions are the same, word for word."""

    names: tuple[str, str]
    """Of the models, files or columns"""
    equal: int
    rows: int
    words: float
    """Words of an answer, on average"""
    distinct: int
    """How many different answers there are among them"""
    places: tuple[tuple[str, int], ...] = ()
    """File and line of the first equal answer, on each side"""


@dataclass(frozen=True)
class EvaluationResults:
    """What was measured on held-out rows."""

    rows: int
    """That were measured"""
    model: ModelMeasurements = ModelMeasurements("model")
    other: ModelMeasurements | None = None
    """What it is compared with"""
    # Only then does a loss that is not lower say that training did nothing.
    is_base: bool = False
    """`other` is what this model was made of"""
    method: str | None = None
    """How it was trained (sft, dpo, ...), where that is recorded"""
    changes: tuple[LossChange, ...] = ()
    prompts: LossChange | None = None
    """The same of the tokens of the prompts, which are not supervised"""
    # Pair by pair: two shares of 80 % may be of the same rows or of others.
    agreements: tuple[Agreement, ...] = ()
    seen: TrainedRows | None = None
    """None where it is not known what was trained on"""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Why rows, or examples of them, were not measured, and how many"""
    parser: ParserSelftest | None = None
    """What the parser that is named makes of answers whose reading is known"""
    judged: tuple[JudgedPair, ...] = ()
    """What an LLM judge decided of pairs of answers, of all files that hold such verdicts"""
    twins: tuple[EqualAnswers, ...] = ()
    """Answers of two models, side by side or in two files"""

    def loss_change_of_token_kind(self, source: str = ALL_TOKENS) -> LossChange | None:
        """The change of one kind of token; None where nothing was compared."""
        return next((change for change in self.changes if change.source == source), None)
