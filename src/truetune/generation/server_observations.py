"""What a server was seen to do with a model, against its training record: the subject of the rules on serving.

`truetune serve-check` asks a running server what its documentation does not tell: which prompt it makes of messages,
where it ends answers, how it samples by itself, how long a prompt may be, and whether the trained weights are served at
all. Each part is None where it was not looked at, and `notes` say why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

By = Literal["ids", "count", "answers"]


@dataclass(frozen=True, slots=True)
class PromptComparison:
    """One prompt: as it was trained, and as the server makes it of the same messages."""

    name: str
    """`2 turns, system`, `row 3`, ..."""
    trained: int
    """Tokens"""
    same: bool | None
    """None where it can't be told"""
    # From the surest to the weakest: equal ids are a proof, equal numbers are likely, equal answers a hint.
    by: By | None = None
    """How it was told: the ids, their number, or what the server answers to each"""
    served: int | None = None
    """Tokens"""
    difference: str = ""
    """What was trained and what is served at the first place where they differ, for a reader"""
    cause: str = ""
    """Why, where a known mistake makes just this prompt: `the template stands twice ...`"""
    # Servers count with or without the BOS. Only one that counts a known prompt rightly proves anything by numbers.
    sure: bool = False
    """By count alone: the server counts a prompt that is known rightly"""
    refused: str = ""
    """What the server said to it"""
    of_data: bool = False
    """A row of the training data, and no fixed conversation"""
    tools: bool = False
    """It has tools."""


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """An answer that should have stopped."""

    question: str
    expected: int | None
    """Tokens after which the model itself stops, where it was asked; else None"""
    tokens: int | None
    """Tokens of the server's answer"""
    finish: str
    """stop or length, as the server says"""
    leaked: str = ""
    """The stop token, or the marker of a role, that stands in the answer's text"""
    runs_on: bool = False
    """The answer continues behind the place where the model stops."""


@dataclass(frozen=True, slots=True)
class ServerStops:
    """Where a server ends an answer."""

    trained: tuple[str, ...]
    """Tokens that end a turn in training: `<|im_end|> (2)`"""
    told: tuple[str, ...] = ()
    """What the server says that it stops at; empty where it does not"""
    missing: tuple[str, ...] = ()
    """Trained ones that the model's own files do not name for serving"""
    endings: tuple[AnswerEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerSampling:
    """What a server does where a request names no sampling."""

    settings: tuple[str, ...] = ()
    """Of generation_config.json: `temperature 1.5`, `repetition_penalty 1.3`"""
    # A server may take its defaults from generation_config.json, which few users know.
    samples: bool | None = None
    """Asked without a temperature, its answers are not the greedy one; None: not told"""
    answers: tuple[str, ...] = ()
    """Greedy, then those without a temperature"""
    penalised: bool | None = None
    """The greedy answer is another one where the request takes the penalties away; None: can't be told"""
    plain: tuple[str, ...] = ()
    """Greedy as it is, and without penalties, where they differ"""


@dataclass(frozen=True, slots=True)
class RepeatedRequests:
    """The same greedy request, again and again."""

    # Alone and together apart: differences at load are rounding in batches, those alone are a fault.
    alone: int
    """Answers to requests one after another"""
    alone_differ: int
    """Of those, other than the first"""
    together: int
    """Answers to requests at the same time"""
    together_differ: int
    margin: float | None = None
    """Nats between the best two tokens where the first different answer leaves the others; None: not told"""
    answers: tuple[str, ...] = ()
    """The different ones"""


@dataclass(frozen=True, slots=True)
class ContextLength:
    """How long a prompt may be."""

    told: int | None = None
    """Tokens, as the server says"""
    positions: int | None = None
    """Of the model"""
    trained: int | None = None
    """Longest example of the training, max_length"""
    sent: int | None = None
    """Tokens of the long prompt that was sent; None: none was"""
    counted: int | None = None
    """Tokens of it that the server says it read"""
    refused: str = ""
    """What it said, where it did not take it"""
    # A server that cuts prompts says nothing. What it read shows by an answer that depends on the beginning.
    beginning: bool | None = None
    """Another beginning gives another answer: it was read; None: not told"""


@dataclass(frozen=True, slots=True)
class AdapterStrength:
    """How much of what training changed is served."""

    by: Literal["logprobs", "answers"]
    places: int
    """Tokens, or prompts, that were compared"""
    adapter: bool
    """MODEL is an adapter; else a whole model with a known base"""
    # One number for the strength: 0 is the base, 1 the tuned model, 0.5 an adapter at half its scale.
    factor: float | None = None
    """Least squares of (served - base) along (tuned - base), log-probabilities: 1 full, 0 the base is served"""
    cosine: float | None = None
    effect: float | None = None
    """Root mean square of (tuned - base), in nats/token"""
    distance: float | None = None
    """Root mean square of (served - tuned), in nats/token"""
    as_tuned: int = 0
    """Answers that are the tuned model's, where base and tuned differ"""
    as_base: int = 0
    # Engines differ in the scaling that they apply (alpha/r, alpha/sqrt(r), none): each wrong one leaves its own
    # factor.
    explained: str = ""
    """The wrong scaling that makes just what is served: `alpha/r instead of alpha/sqrt(r) ...`"""
    explained_distance: float | None = None
    """Root mean square of (served - tuned with that scaling), in nats/token"""


@dataclass(frozen=True)
class ServerObservations:
    """A server that was asked; None where a part was not looked at."""

    url: str
    model: str | None = None
    """As the server calls it"""
    prompts: tuple[PromptComparison, ...] = ()
    stopping: ServerStops | None = None
    sampling: ServerSampling | None = None
    repeats: RepeatedRequests | None = None
    context: ContextLength | None = None
    strength: AdapterStrength | None = None
    ignored: tuple[str, ...] = ()
    """Fields of requests that the server takes and does nothing with"""
    notes: tuple[str, ...] = field(default_factory=tuple)
    """What could not be looked at, and why"""
    lost: tuple[str, ...] = ()
    """Parts of the check that the server did not answer any more"""
