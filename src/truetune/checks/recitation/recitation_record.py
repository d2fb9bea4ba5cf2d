"""The record of a recitation: what the miniature answered after it memorised a few rows, as a
rehearsal writes it.

A rehearsal writes it as JSON (`facts["recitation"]` of its record, from the user's process to ours). The typed
dictionaries below name its fields; nothing is converted, so a record of an older release reads as it was written. Only
answers of rows that were learned are judged: a model that did not learn a row proves nothing by not knowing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict, cast

from truetune.auditing.audit import Audit
from truetune.checks.findings import Case
from truetune.checks.judgement import Unmet
from truetune.checks.shorten_text import quote_shortened

# A mean cross-entropy of the labels, in nats. Chosen, not measured here: memorised rows end below 0.01 (README's
# table), an unlearned one above 1. At half or double the same rows count as learned.
MAX_LEARNED_LOSS = 0.5
KINDS_WITHOUT_ANSWER = ("text", "inside")
"""Rows of plain text, and those whose answer cannot be told from the prompt"""


class ComparedAnswer(TypedDict):
    """A greedy answer beside the reference of its row."""

    said: str
    """The answer's text"""
    recited: bool
    """It begins with the reference"""
    exact: bool
    """It is the reference"""
    stopped: bool
    """A stop token ended it"""
    early: bool
    """It stopped inside the reference"""
    cut: bool
    """The limit of new tokens ended it"""


class PromptDifference(TypedDict):
    """Where the served prompt leaves the trained one."""

    first: int
    """The first token that differs"""
    same_end: bool
    """Both end alike over the length of the generation prompt"""
    trained: str
    served: str
    lengths: tuple[int, int]
    """Tokens of the trained and of the served prompt"""


class RowIds(TypedDict):
    """Token ids of a row's prompts."""

    trained: list[int]
    prompt: list[int]
    """As the tokenizer's template makes it for serving"""


class RecitedAnswer(ComparedAnswer):
    """One row: its texts, and the answer to its served prompt."""

    number: int | None
    """Of the user's row"""
    kind: str
    question: str
    reference: str
    field: str | None
    """The column whose text the answer is, instead of the reference"""
    echo: bool
    """The answer begins with the question"""
    trained: ComparedAnswer | None
    """The answer to the trained prompt, where that is another one"""
    prompt: PromptDifference | None
    probability: tuple[float, float]
    """Log-probability of the reference behind the trained and behind the served prompt"""
    closed: bool
    """A stop id stands behind the answer in the row"""
    right: float
    """Share of the reference's tokens that are the likeliest ones, given those before"""
    stop_after: float
    """Probability of a stop behind the reference"""
    stop_inside: float
    """Largest probability of a stop inside of it"""
    supervised: int | None
    """Tokens of the answer that are in the loss"""
    answer: int
    """Tokens of the answer"""
    ids: RowIds


class PairMargin(TypedDict):
    """A pair of answers, and how much likelier the chosen one is, in nats."""

    chosen: str
    rejected: str
    before: float
    after: float


class GoldenRollouts(TypedDict, total=False):
    """What the trainer's own rewards and loss make of right and wrong answers in the place of sampled ones."""

    nothing: str
    """Why it was not tried"""
    right: float
    """Mean reward of the right answers, of all functions together"""
    wrong: float
    form: str
    """In which they were written, `\\boxed{X}`"""
    tried: int
    """Answers in all forms, right and wrong ones"""
    spread: float
    """Their largest reward less the smallest"""
    margins: Sequence[tuple[float, float]]
    """Of each prompt how much likelier the right answer is, before and after, in nats; empty where right answers are
    paid no more than wrong ones"""
    steps: int


class LearnableReward(TypedDict):
    """How a reward went that can be learned, and that the trainer sampled for."""

    rewards: Sequence[float]
    """Mean of the sampled answers, step by step"""
    policy: Sequence[float]
    """Probability of the rewarded word by the policy itself, before each step and after the last"""
    spread: float
    """Share of the groups with more than one reward"""
    in_loss: int
    """Tokens in the loss of all steps"""
    gradient: float
    """Largest norm"""


class RewardTrials(TypedDict, total=False):
    """What a miniature learned by rewards."""

    nothing: str
    """Why nothing was tried"""
    prompts: int
    own: GoldenRollouts
    learned: LearnableReward


class ServerPromptIds(TypedDict):
    """The prompt that a server makes of a row's messages."""

    row: int
    """Index in `rows`"""
    ids: list[int] | None
    count: int


class ServedPrompts(TypedDict):
    """What a server said of the prompts of rows."""

    url: str
    prompts: list[ServerPromptIds]


class Recitation(TypedDict, total=False):
    """A whole recitation; empty where nothing was recited."""

    loss: Sequence[float]
    label_loss: float | None
    """Of the labels alone; another one than the loss where the user has a loss of their own"""
    fell: bool
    """The loss fell far enough that the rows count as learned"""
    rows: Sequence[RecitedAnswer]
    stops: Sequence[int]
    """Stop ids at generation"""
    pairs: Sequence[PairMargin]
    served: ServedPrompts
    rewards: RewardTrials


def read_recitation(subject: Audit) -> Recitation:
    """The recitation in the audit's record; {} if nothing was recited."""
    return cast("Recitation", subject.facts.get("recitation") or {})


def rows_with_separable_answer_if_learned(subject: Audit) -> list[RecitedAnswer]:
    """The recited rows whose answer can be told from its prompt, if they were learned; empty if
    they were not.
    """
    recitation = read_recitation(subject)
    # A loss of the user's own may fall while the labels are not learned, so both have to.
    label_loss = recitation.get("label_loss")
    if not recitation.get("fell") or (label_loss is not None and label_loss > MAX_LEARNED_LOSS):
        return []
    return [row for row in recitation["rows"] if row["kind"] not in KINDS_WITHOUT_ANSWER]


def explain_why_no_answers_are_judged(subject: Audit) -> Unmet | None:
    """Why nothing that the miniature answered is judged; None where there are answers of learned rows."""
    recitation = read_recitation(subject)
    if rows_with_separable_answer_if_learned(subject):
        return None
    if recitation.get("pairs"):
        return Unmet("it is about rows with one answer, and pairs were trained")
    if all(row["kind"] in KINDS_WITHOUT_ANSWER for row in recitation.get("rows", ())):
        return Unmet("it is about prompts with answers, and the rows are plain text")
    return Unmet("the miniature did not learn its rows, so its answers show nothing")


def is_recited_from_any_prompt(row: RecitedAnswer) -> bool:
    """Is the answer of a row recited from the served prompt, or from the trained one?"""
    answer_to_trained = row["trained"]
    return row["recited"] or (answer_to_trained is not None and answer_to_trained["recited"])


def stops_right_after_reference(answer: ComparedAnswer | None) -> bool:
    """Did a stop follow the reference, and nothing else?"""
    return bool(answer and answer["exact"] and answer["stopped"])


def case_of_recited_answer(row: RecitedAnswer, why: str = "") -> Case:
    """A case with question, reference and answer of a row, and `why` after them."""
    place = f"row {row['number']}: " if row["number"] is not None else ""
    question, said = quote_shortened(row["question"]), quote_shortened(row["said"])
    if said == quote_shortened(row["reference"]):
        return Case(f"{place}{question} gives {said}, the answer of its row{why}")
    return Case(
        f"{place}{question} should give {quote_shortened(row['reference'])} but gives {said}{why}"
    )


def cases_of_recited_answers(rows: Iterable[RecitedAnswer]) -> list[Case]:
    """A case for each row."""
    return [case_of_recited_answer(row) for row in rows]
