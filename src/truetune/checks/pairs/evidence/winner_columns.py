"""Reads from the columns of a row with two answers which of them is the better one, whatever a
mapping makes of them.

A comparison has two columns of answers that differ in a word of their names (`response_a`, `response_b`), and often one
that names the winner: by that word (`A`), by the column, by the answer's text, by the name of the model that wrote it
(`model_b`: llama), or as a number. Scores of both sides (`score_a`, `score_b`) say it as well.

The trade-off: a column counts by its name alone (`winner`, `preferred`, `better_response_id`), so that a group, a
language or the side that a labeller saw first is none. What a number stands for is not always sure: 0 and 1 may be an
index, or say that the first side is the better one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import PairTexts, pair_texts
from truetune.data.conversation import Conversation
from truetune.data.llm_judge_verdicts_and_bias import PAIR_ENDINGS, parse_winning_place
from truetune.encoding.row_fingerprints import text_of

WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
BETTER = frozenset(
    (
        "winner", "winning", "preferred", "prefer", "prefers", "preference", "better", "best", "verdict", "judgement",
        "judgment", "vote", "choice", "pick", "picked", "decision", "selected", "favored", "favoured", "favorite",
        "favourite", "superior", "safer", "chosen", "label", "labels",
    )
)  # fmt: skip
WORSE = frozenset(("loser", "losing", "worse", "worst", "rejected", "inferior"))
NUMBERS_MEAN_ANYTHING = frozenset(("label", "labels", "for", "n"))
"""Words of columns whose numbers may be a class or a count of anything: `chosen_for_test`, `best_of_n`"""
SAID_OF_ROWS = frozenset(("selected", "picked"))
"""Words that are said of a whole row as well: beside no word for an answer, 1 may say that the row is trained"""
OF_THE_PAGE = frozenset(
    (
        "shown", "show", "order", "position", "presented", "display", "displayed", "screen", "layout", "swap",
        "swapped", "flip", "flipped", "reason", "reasons", "comment", "confidence", "strength", "time", "date", "count",
        "margin", "length", "language", "annotator", "set", "split", "version", "tie", "ties", "draw",
    )
)  # fmt: skip
"""Words of columns that tell how, when or where a pair was judged"""
MORE = frozenset(
    (
        "score", "scores", "rating", "ratings", "reward", "rewards", "grade", "grades", "stars", "elo", "upvotes",
        "votes", "likes", "wins", "points", "quality",
    )
)  # fmt: skip
LESS = frozenset(("rank", "ranks", "ranking", "penalty"))
ANSWERS = frozenset(
    (
        "answer", "response", "output", "completion", "reply", "candidate", "text", "model", "assistant", "option",
        "system",
    )
)  # fmt: skip
PLAIN = ANSWERS | frozenset(
    ("avg", "average", "mean", "overall", "total", "final", "human", "is", "the", "of", "ref")
)
"""Words that name no side and no aspect"""
RATERS = frozenset(("judge", "llm", "gpt", "rm"))
"""Words that tell who gave a score"""
INDEX = frozenset(("id", "idx", "index", "number"))
TRUE, FALSE = frozenset(("true", "yes")), frozenset(("false", "no"))
MAX_VALUE_CHARS = 80
"""Characters of a value that names a side. Chosen by hand: names of models and columns are shorter,
explanations longer"""


class Sides(NamedTuple):
    """The two columns of answers of a row, in the order of their names."""

    names: tuple[str, str]
    tags: tuple[str, str]
    """The words in which the names differ: `a` and `b`"""
    is_ordered: bool
    """Are the tags a first and a second: letters, numbers, left and right?"""
    chosen: int
    """Which of them is taken as chosen: 0 or 1"""
    are_named_by_rank: bool = False
    """Are the columns called the better and the worse one (`chosen`, `rejected`) already?"""


class Vote(NamedTuple):
    """What one column says of a row."""

    column: str
    winner: int | None
    """0 or 1 by the order of the sides; None for a tie, and for a number whose meaning the whole column shows"""
    number: float | None = None
    is_score: bool = False
    text: str = ""
    scores: tuple[str, str] | None = None
    """What the row holds of the chosen and of the rejected side, as it is written; None where it is no score"""


def answer_columns_of_both_sides(raw: Mapping[str, Any], texts: PairTexts) -> Sides | None:
    """The columns from which the two answers of a pair were taken; None where they are not told apart."""
    good, bad = texts.chosen.strip(), texts.rejected.strip()
    if not good or not bad or good == bad:
        return None
    ranked = _answer_columns_named_better_and_worse(raw, good, bad)
    if ranked is not None:
        return ranked
    chosen = _neutrally_named_answer_column(raw, good)
    rejected = _neutrally_named_answer_column(raw, bad)
    if chosen is None or rejected is None:
        return None
    return _sides_ordered_by_names(chosen, rejected)


def _sides_ordered_by_names(chosen: str, rejected: str) -> Sides | None:
    """The columns of the two answers in the order of their names; None where no words differ in them."""
    tags = _differing_words(chosen, rejected)
    if tags is None:
        return None
    pair, turned = (tags[0], tags[1]), (tags[1], tags[0])
    # Endings such as `a` and `b` say which column is the first; else the names do, in their order.
    is_first = pair in PAIR_ENDINGS or (turned not in PAIR_ENDINGS and chosen <= rejected)
    names = (chosen, rejected) if is_first else (rejected, chosen)
    ordered_tags = pair if is_first else turned
    return Sides(names, ordered_tags, ordered_tags in PAIR_ENDINGS, 0 if is_first else 1)


def winner_votes_of_row_columns(raw: Mapping[str, Any], sides: Sides) -> Iterator[Vote]:
    """What the other columns of a row say of which side is better.

    Of columns that are called chosen and rejected only scores are read: `chosen_model` names no winner.
    """
    others = {str(name): value for name, value in raw.items() if name not in sides.names}
    writers = _texts_naming_sides(others, sides)
    named = {} if sides.are_named_by_rank else others
    for name, value in named.items():
        if isinstance(value, str | int | float):
            vote = _vote_of_column(name, value, raw, sides, writers)
            if vote is not None:
                yield vote
    yield from _votes_of_scores(others, sides)


def do_columns_prefer_rejected(row: Conversation) -> bool:
    """Does a column of the row name the rejected side as the winner, and none the chosen one?"""
    sides = answer_columns_of_both_sides(row.raw, pair_texts(row)) if row.raw else None
    if sides is None or row.raw is None:
        return False
    votes = winner_votes_of_row_columns(row.raw, sides)
    winners = {vote.winner for vote in votes if vote.winner is not None and not vote.is_score}
    return winners == {1 - sides.chosen}


def _neutrally_named_answer_column(raw: Mapping[str, Any], text: str) -> str | None:
    """The one column that holds an answer and is not called the better one; None where it is not one."""
    names = [str(name) for name, value in raw.items() if _text_of_value(value) == text]
    sides = [name for name in names if not (BETTER | WORSE).intersection(_words_of_name(name))]
    return sides[0] if len(sides) == 1 else None


def _answer_columns_named_better_and_worse(
    raw: Mapping[str, Any], good: str, bad: str
) -> Sides | None:
    """The two columns of answers that are called the better and the worse one; None where they are not."""
    chosen, rejected = (
        [
            str(name)
            for name, value in raw.items()
            if _is_answer_column_named_by_words(name, words, value, text)
        ]
        for words, text in ((BETTER, good), (WORSE, bad))
    )
    if len(chosen) != 1 or len(rejected) != 1:
        return None
    tags = _differing_words(chosen[0], rejected[0])
    if tags is None:
        return None
    return Sides((chosen[0], rejected[0]), tags, False, 0, are_named_by_rank=True)


def _is_answer_column_named_by_words(
    name: object, words: frozenset[str], value: Any, text: str
) -> bool:
    """Does a column hold this answer, and is it called by one of these words?"""
    return bool(words.intersection(_words_of_name(str(name)))) and _text_of_value(value) == text


def _text_of_value(value: Any) -> str:
    """The text of a column, or of the last message in it."""
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        last = value[-1]
        value = text_of(last.get("content", last.get("value")))
    return value.strip() if isinstance(value, str) else ""


def _words_of_name(name: str) -> list[str]:
    """The words of a column's name in lower case."""
    return [word.lower() for word in WORDS.findall(name)]


def _differing_words(one: str, other: str) -> tuple[str, str] | None:
    """The words of each of two column names that the other lacks, joined; None if one of them has
    none.
    """
    first, second = _words_of_name(one), _words_of_name(other)
    tags = (
        " ".join(word for word in first if word not in second),
        " ".join(word for word in second if word not in first),
    )
    return tags if all(tags) else None


def _texts_naming_sides(others: Mapping[str, Any], sides: Sides) -> dict[str, int]:
    """Short texts that stand for one side alone: `model_a: gpt` beside `model_b: llama`."""
    side_by_text: dict[str, int] = {}
    doubtful: set[str] = set()
    for name, value in others.items():
        side = _side_in_name(_words_of_name(name), sides)
        if (
            side is None
            or not isinstance(value, str)
            or (BETTER | WORSE).intersection(_words_of_name(name))
        ):
            continue
        key = value.strip().casefold()
        if side_by_text.setdefault(key, side) != side:
            doubtful.add(key)
    return {key: side for key, side in side_by_text.items() if key and key not in doubtful}


def _side_in_name(words: list[str], sides: Sides) -> int | None:
    """The side whose tag stands in a name; None where none does, or both do."""
    inside = [side for side in (0, 1) if set(sides.tags[side].split()) <= set(words)]
    return inside[0] if len(inside) == 1 else None


def _vote_of_column(
    name: str, value: str | float, raw: Mapping[str, Any], sides: Sides, writers: Mapping[str, int]
) -> Vote | None:
    """What one column says; None where its name is none of a winner's, or its value names no side."""
    words = _words_of_name(name)
    is_better, is_worse = BETTER.intersection(words), WORSE.intersection(words)
    if bool(is_better) == bool(is_worse) or OF_THE_PAGE.intersection(words):
        return None
    if _side_in_name(words, sides) is not None and _parse_truth(value) is not None:
        vote = _vote_of_boolean_column(words, value, raw, sides)
    else:
        vote = _vote_by_value(name, value, raw, sides, writers)
    if vote is None or (vote.number is not None and _may_numbers_mean_no_side(words)):
        return None
    if is_worse and vote.winner is not None:
        return vote._replace(winner=1 - vote.winner)
    return None if is_worse and vote.number is not None else vote


def _may_numbers_mean_no_side(words: Sequence[str]) -> bool:
    """May the numbers of a column of these words be no sides: a class, a count, or a mark of whole rows?"""
    if NUMBERS_MEAN_ANYTHING.intersection(words):
        return True
    is_said_of_rows = not SAID_OF_ROWS.isdisjoint(words)
    return is_said_of_rows and (ANSWERS | INDEX).isdisjoint(words)


def _vote_of_boolean_column(
    words: list[str], value: str | float, raw: Mapping[str, Any], sides: Sides
) -> Vote | None:
    """The vote of a column whose value is true or false: `is_a_better: true`, `winner_model_b: 1`.

    None if its name names no side.
    """
    side, truth = _side_in_name(words, sides), _parse_truth(value)
    if side is None or truth is None:
        return None
    own = sides.tags[side].split()
    key = " ".join("*" if word in own else word for word in words)
    if truth:
        return Vote(key, side, text=str(value))
    # Beside a column of the other side, false is said of a tie as well.
    others = sides.tags[1 - side].split()
    has_sibling = any(
        " ".join("*" if word in others else word for word in _words_of_name(str(name))) == key
        for name in raw
    )
    return None if has_sibling else Vote(key, 1 - side, text=str(value))


def _parse_truth(value: str | float) -> bool | None:
    """True or false, also as 1 and 0 and as a table's text; None for anything else."""
    text = str(value).strip().casefold()
    if text in TRUE or text in ("1", "1.0"):
        return True
    return False if text in FALSE or text in ("0", "0.0") else None


def _vote_by_value(
    name: str, value: str | float, raw: Mapping[str, Any], sides: Sides, writers: Mapping[str, int]
) -> Vote | None:
    """The side that a value names: by its text, its column, its tag, its writer or as a number."""
    if isinstance(value, bool):
        return None
    text = str(value).strip()
    number = _parse_number(text)
    if number is not None:
        return Vote(name, None, number, text=text) if sides.is_ordered else None
    side = _side_of_text(text, raw, sides, writers)
    if side is not None:
        return Vote(name, side, text=text[:MAX_VALUE_CHARS])
    slot = parse_winning_place(text)
    if slot == "tie":
        return Vote(name, None, text=text)
    if slot == "unread" or not sides.is_ordered:
        return None
    return Vote(name, 0 if slot == "first" else 1, text=text)


def _side_of_text(
    text: str, raw: Mapping[str, Any], sides: Sides, writers: Mapping[str, int]
) -> int | None:
    """The side that a text names; None where it names none."""
    for side, column in enumerate(sides.names):
        if text.casefold() == column.casefold() or text == _text_of_value(raw.get(column)):
            return side
    if text.casefold() in writers:
        return writers[text.casefold()]
    if len(text) > MAX_VALUE_CHARS:
        return None
    shared = set(_words_of_name(sides.names[0])) & set(_words_of_name(sides.names[1]))
    rest = " ".join(
        word for word in _words_of_name(text) if word not in shared and word not in PLAIN
    )
    return sides.tags.index(rest) if rest in sides.tags else None


def _parse_number(value: Any) -> float | None:
    """A whole or broken number, also as a table's text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value).strip()
    return float(text) if re.fullmatch(r"-?\d{1,9}(?:\.\d{1,9})?", text) else None


def _votes_of_scores(others: Mapping[str, Any], sides: Sides) -> Iterator[Vote]:
    """Scores of both sides as a whole: `score_a` and `score_b`; those of one aspect say nothing."""
    scores: dict[str, dict[int, float]] = {}
    written: dict[str, dict[int, str]] = {}
    for name, value in others.items():
        words, number = _words_of_name(name), _parse_number(value)
        side = _side_in_name(words, sides)
        if number is None or side is None:
            continue
        own = set(sides.tags[side].split())
        if _do_words_name_overall_score(word for word in words if word not in own):
            key = " ".join("*" if word in own else word for word in words)
            scores.setdefault(key, {})[side] = number
            written.setdefault(key, {})[side] = str(value).strip()
    for key, by_side in scores.items():
        if len(by_side) == 2:
            vote = _vote_by_scores(key, by_side[0], by_side[1])
            texts = written[key]
            yield vote._replace(scores=(texts[sides.chosen], texts[1 - sides.chosen]))


def _do_words_name_overall_score(words: Iterable[str]) -> bool:
    """Do the words of a column, without that of its side, name a score, and no aspect of the answer?"""
    named = set(words)
    return bool((MORE | LESS) & named) and named <= MORE | LESS | PLAIN | RATERS


def _vote_by_scores(column: str, first: float, second: float) -> Vote:
    """The side with the better score: the higher one, of a rank the lower one; equal scores are a tie."""
    text = f"{first:g} against {second:g}"
    if first == second:
        return Vote(column, None, is_score=True, text=text)
    is_less_better = bool(LESS.intersection(column.split()))
    winner = 0 if (first > second) != is_less_better else 1
    return Vote(column, winner, is_score=True, text=text)
