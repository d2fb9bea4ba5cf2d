"""Reads an LLM judge's verdicts on pairs of answers, and counts whether the judge prefers a place
or the longer answer.

A judge sees two answers, one first and one second. Whether it judges the answers or their places shows where the same
two answers were judged in both orders, where both are the same model's, and where files compare two models each way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb, log10
from typing import Any, Literal, NamedTuple

Slot = Literal["first", "second", "tie", "unread"]
PAIR_ENDINGS = (("a", "b"), ("1", "2"), ("0", "1"), ("left", "right"), ("first", "second"))
VERDICT_NAMES = frozenset(
    (
        "verdict",
        "winner",
        "judgement",
        "judgment",
        "preference",
        "preferred",
        "decision",
        "vote",
        "judge",
        "judge_verdict",
        "judge_answer",
        "judge_output",
        "judge_choice",
        "better",
        "best",
        "choice",
        "result",
        "rating_winner",
        "chosen_slot",
        "pick",
    )
)
"""What files call the column of what the judge said"""
MODEL_STEMS = ("model", "assistant", "system", "model_name")
TEXT_STEMS = (
    "answer",
    "response",
    "output",
    "completion",
    "reply",
    "conversation",
    "text",
    "candidate",
    "generation",
)
VERDICT = re.compile(
    r"^\W*(?:(?:answer|response|output|assistant|model|candidate|option|completion|system)[\s_-]*)?"
    r"(?P<slot>a|b|1|2|left|right|first|second)\W*$",
    re.IGNORECASE,
)
TIE = re.compile(r"^\W*(?:tie|ties|draw|equal|both|neither|same|c|none)\b", re.IGNORECASE)
FIRST_WORDS = frozenset(("a", "1", "left", "first"))
MAX_P = 0.001
"""Chance of as uneven a count, from which on a place is said to win by its place"""
MIN_VERDICTS = 20
"""Decided verdicts below which nothing is said"""
MIN_EXCESS = 0.1
"""Share of all pairs by which one place wins more often than the other: people differ by some hundredths"""


class PairColumns(NamedTuple):
    """The columns of a file of verdicts."""

    verdict: str
    texts: tuple[str, str] | None
    models: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """Two answers to one question, and what the judge said."""

    question: str
    texts: tuple[str, str]
    """As they stood before the judge; empty where the file does not hold them"""
    models: tuple[str, str]
    """Who wrote them; empty where the file does not say it"""
    verdict: Slot
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class PlaceCount:
    """How often the answer in the first place won, among pairs where the place alone should decide nothing."""

    how: str
    first: int
    second: int
    ties: int = 0
    case: JudgedPair | None = None

    @property
    def number_of_decided_pairs(self) -> int:
        """How many pairs have a winner."""
        return self.first + self.second

    @property
    def is_uneven_beyond_chance(self) -> bool:
        """Does one place win far more often than chance lets it?"""
        excess = abs(self.first - self.second)
        return (
            self.number_of_decided_pairs >= MIN_VERDICTS
            and self.p_value_of_unevenness < MAX_P
            and excess >= MIN_EXCESS * (self.number_of_decided_pairs + self.ties)
        )

    @property
    def p_value_of_unevenness(self) -> float:
        """The two-sided probability of a count as uneven as this one, if both places win equally
        often.
        """
        return two_sided_binomial_p(self.first, self.second)


def two_sided_binomial_p(first: int, second: int) -> float:
    """The two-sided p of two counts, if both outcomes are equally likely (exact binomial test)."""
    of = first + second
    if not of:
        return 1.0
    tail = sum(comb(of, k) for k in range(min(first, second) + 1))
    # As a ratio of integers: 2 to the power of 2,000 is no float.
    return (
        min(1.0, (2 * tail) / (1 << of))
        if of < 1000
        else 10.0 ** min(0.0, _log10_of_doubled_tail(tail, of))
    )


def _log10_of_doubled_tail(tail: int, of: int) -> float:
    """log10 of 2 * tail / 2^of, for counts too large for floats."""
    return log10(2) + log10(tail) - of * log10(2)


def parse_winning_place(value: Any) -> Slot:
    """The place that a verdict names as the winner: first, second or tie."""
    if isinstance(value, bool) or value is None:
        return "unread"
    text = str(value).strip()
    marked = re.findall(r"\[\[(.{1,3}?)\]\]", text)
    text = marked[-1] if marked else text
    match = VERDICT.match(text)
    # `C` alone is the third letter of MT-Bench's prompt: a tie.
    if match is None:
        return "tie" if TIE.match(text) else "unread"
    return "first" if match["slot"].lower() in FIRST_WORDS else "second"


def find_verdict_columns(row: dict[str, Any]) -> PairColumns | None:
    """The columns of a row that an LLM judge's script wrote: texts or models of both places, and
    the verdict. None if it is no such row.
    """
    names = {re.sub(r"[\W_]+", "_", name).strip("_").lower(): name for name in row}
    verdict = next((names[name] for name in names if name in VERDICT_NAMES), None)
    if verdict is None or isinstance(row[verdict], dict | list):
        return None
    texts = _column_pair_by_stem_and_place(names, TEXT_STEMS)
    models = _column_pair_by_stem_and_place(names, MODEL_STEMS)
    if texts is None and models is None:
        return None
    return PairColumns(verdict, texts, models)


def _column_pair_by_stem_and_place(
    names: dict[str, str], stems: Sequence[str]
) -> tuple[str, str] | None:
    """The two columns that differ only in the letter or number of their place."""
    for stem in stems:
        for one, other in PAIR_ENDINGS:
            first = next(
                (names[key] for key in (f"{stem}_{one}", f"{stem}{one}") if key in names), None
            )
            second = next(
                (names[key] for key in (f"{stem}_{other}", f"{stem}{other}") if key in names), None
            )
            if first is not None and second is not None:
                return first, second
    return None


def count_wins_that_show_place_bias(pairs: Sequence[JudgedPair]) -> Iterator[PlaceCount]:
    """The counts of wins by place among pairs where the place alone should decide nothing, the
    surest kind first.
    """
    yield from _count_pairs_judged_in_both_orders(pairs)
    yield from _count_verdicts_on_equal_sides(pairs)
    yield from _count_wins_of_models_in_both_orders(pairs)


def _count_pairs_judged_in_both_orders(pairs: Sequence[JudgedPair]) -> Iterator[PlaceCount]:
    """Count the same two answers, judged in both orders: a verdict that stays with the place
    contradicts itself.
    """
    seen: dict[tuple[str, str, str], JudgedPair] = {}
    first = second = ties = 0
    case: JudgedPair | None = None
    for pair in pairs:
        sides = pair.texts if all(pair.texts) else pair.models
        if len(sides) != 2 or sides[0] == sides[1] or not all(sides):
            continue
        swapped = seen.get((pair.question, sides[1], sides[0]))
        if swapped is None:
            seen[pair.question, sides[0], sides[1]] = pair
            continue
        if pair.verdict == swapped.verdict == "first":
            first += 1
            case = case or pair
        elif pair.verdict == swapped.verdict == "second":
            second += 1
            case = case or pair
        else:
            ties += 1
    if first + second:
        yield PlaceCount("the same two answers in both orders", first, second, ties, case)


def _count_verdicts_on_equal_sides(pairs: Sequence[JudgedPair]) -> Iterator[PlaceCount]:
    """Count the verdicts on a model against itself, or on two equal answers, of which neither place
    should win.
    """
    own = [
        pair
        for pair in pairs
        if (all(pair.models) and pair.models[0] == pair.models[1])
        or (all(pair.texts) and pair.texts[0] == pair.texts[1])
    ]
    if own:
        yield _count_wins_of_each_place("a model against itself, or two equal answers", own)


def _count_wins_of_models_in_both_orders(pairs: Sequence[JudgedPair]) -> Iterator[PlaceCount]:
    """Count models that were compared each way, by their names: the better one is as often second
    as it is first.

    Of each two models, as many pairs are counted in one order as in the other.
    """
    by_models: dict[tuple[str, str], list[JudgedPair]] = {}
    for pair in pairs:
        if all(pair.models) and pair.models[0] != pair.models[1]:
            by_models.setdefault(pair.models, []).append(pair)
    balanced: list[JudgedPair] = []
    for models, one in by_models.items():
        other = by_models.get((models[1], models[0]), [])
        balanced += one[: min(len(one), len(other))]
    if balanced:
        yield _count_wins_of_each_place("two models that were compared each way", balanced)


def _count_wins_of_each_place(how: str, pairs: Sequence[JudgedPair]) -> PlaceCount:
    """How often each place won."""
    wins = {
        slot: sum(pair.verdict == slot for pair in pairs) for slot in ("first", "second", "tie")
    }
    return PlaceCount(how, wins["first"], wins["second"], wins["tie"], pairs[0] if pairs else None)


def count_wins_of_longer_and_shorter(pairs: Sequence[JudgedPair]) -> tuple[int, int]:
    """How often the longer answer won, and how often the shorter one; pairs of nearly equal length
    are left out.
    """
    longer = shorter = 0
    for pair in pairs:
        one, other = (len(text) for text in pair.texts)
        if pair.verdict not in ("first", "second") or min(one, other) * 1.1 > max(one, other):
            continue
        won_by_longer = (one > other) == (pair.verdict == "first")
        longer += won_by_longer
        shorter += not won_by_longer
    return longer, shorter


def is_row_of_verdicts(row: dict[str, Any]) -> bool:
    """Is a row, by its columns and its verdict, what an LLM judge's script writes of a pair?"""
    columns = find_verdict_columns(row)
    return columns is not None and parse_winning_place(row[columns.verdict]) != "unread"
