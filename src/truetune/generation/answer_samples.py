"""What a model was seen to answer: samples with their scores, at some steps of a run or at none.

The data that travels from whoever asks (a run that is watched, `truetune sample`, `truetune score` on a file of
predictions) to the rules on answers. Frozen, and without torch: reports of runs are read where no torch is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Larger than any answer, so that comparisons need no case for it.
NO_LIMIT = 1 << 30
"""Tokens: the limit of answers that somebody else made, and does not name"""


@dataclass(frozen=True, slots=True)
class Chat:
    """A question as messages, for who renders them himself."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Variables for the template"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question as the model will be served it."""

    ids: tuple[int, ...]
    """Up to and with the generation prompt"""
    question: str
    """The last thing that was said, for a reader"""
    reference: str
    """The answer of the data, without its stop token; empty where there is none"""
    reference_ids: tuple[int, ...]
    """The reference as it is trained, with its stop token"""
    file: str
    line: int
    # Answers to trained rows tell of memory, and not of what was learned: reports say which these are.
    seen: bool = False
    """It is one of the rows that are trained on."""
    text: str = ""
    """What the ids were made of"""
    chat: Chat | None = None
    """None where the row is plain text"""
    row: int = -1
    """Its row, counted from 0 over all files, which tells rows apart: in JSON on one line all have one `line`. -1 where
    it is not known"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said to one prompt, greedily."""

    ids: tuple[int, ...]
    """Without the stop token"""
    text: str
    """Decoded; control tokens shown"""
    stop: int | None
    """The stop id that ended it; None where it was cut at the limit. Where nobody says what ended it (a file of
    predictions), an id without a meaning, and `Scores.end_known` is False"""
    # Beside `stop`: a greedy answer shows one token, and this how near the model was to another.
    stop_probability: float | None = None
    """P(any stop token) behind the whole reference answer, teacher-forced; None without a reference"""
    stop_rank: int | None = None
    """Rank of the likeliest stop token there, 0 = first"""
    logprob: float | None = None
    """Mean of the answer's tokens under the model itself, in nats, its stop token among them; None where the backend
    can't tell"""
    has_prompt: bool = False
    """The text was given with its prompt in front, which is no part of it here"""


@dataclass(frozen=True, slots=True)
class Scores:
    """One answer, measured; None where a measure does not apply.

    Saved as the columns of a Parquet file (`sampling_pass_files`). A score that is added has a default, because the
    files of older releases do not have its column.
    """

    stopped: bool
    empty: bool
    looped: bool
    """It ends in the same words over and over, or is full of them."""
    repetition: float
    """Share of its 4-grams of words that stand in it before, 0 to 1"""
    echoed: bool
    """It begins with the question, word for word, or is little else."""
    markers: tuple[str, ...]
    """Role markers and control tokens that stand in its text"""
    language: str | None
    """ISO 639-1; None where the text is too short to tell"""
    switched: bool | None
    """Another language than the reference's, than the question's where the reference does not tell, or another one from
    some place on; None where no language is known"""
    length_ratio: float | None
    """Its length over the reference's, in tokens"""
    exact: bool | None
    """Equal to the reference, white space aside"""
    overlap: float | None
    """Token-level F1 with the reference, 0 to 1"""
    parsed: bool | None
    """The named parser reads it; None where none is named"""
    agrees: bool | None = None
    """The parser reads the same of it and of the reference; None where it reads nothing of the reference"""
    garbage: bool = False
    """It is no text: broken characters, or words that the model itself finds unlikely."""
    perplexity: float | None = None
    """Of the answer under the model itself; None where it can't be told"""
    too_long: bool | None = None
    """Far longer than the reference; None without one"""
    # A file of predictions seldom says why an answer ended. Calling all of them endless would blame every model.
    end_known: bool = True
    """It is known what ended it. Where it is not, it counts as stopped."""
    alike: bool = False
    """All questions of its sampling pass got this answer, and should not have (`identical_answers`)."""
    elsewhere: bool = False
    """It gives the reference of another row, and the order of the rows was lost (`find_answers_beside_wrong_rows`)."""
    gives: bool | None = None
    """It gives its reference: the label, the number, the words; None where that can't be told of texts like these"""
    escapes: tuple[str, ...] = ()
    """Escapes that stand in its text instead of characters: `\\n`, `&amp;`"""
    # Of answers that a training by rewards has sampled and learned from; None elsewhere.
    reward: float | None = None
    """What the reward functions gave it, weighted and summed; None too where none of them scored it"""
    advantage: float | None = None
    """How much it counts in the loss: its reward beside those of the other answers to its prompt"""


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt, its answer and the scores."""

    prompt: Prompt
    answer: Answer
    scores: Scores


@dataclass(frozen=True, slots=True)
class SamplingPass:
    """All samples of one step."""

    step: int
    samples: tuple[Sample, ...]
    seconds: float
    """What it took"""


@dataclass(frozen=True, slots=True)
class StepLosses:
    """Mean loss in nats/token since the last of these, by what the token is."""

    step: int
    by_source: Mapping[str, float]
    """`assistant content`, `stop token`, `reasoning`, `tool call`, `first token`, ...: names of Source.label"""
    tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampledRun:
    """A run so far: the subject of the rules on answers. Of a finished model there is one sampling pass, and no losses.

    JSON reports and the pages of the rules say "pass" for a sampling pass; the fields that hold some are named `looks`.
    """

    looks: tuple[SamplingPass, ...]
    losses: tuple[StepLosses, ...] = ()
    # A few sentences: enough to see an end, and cheap enough to ask during training.
    limit: int = 128
    """Tokens after which an answer was cut"""
    finished: bool = False
    """Nothing more will be trained."""
    total: int | None = None
    """Steps of the whole run, where they are known"""
