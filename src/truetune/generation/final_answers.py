"""Final answers: what a text gives as its answer, by the marks that people write, and other ways to write it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, NamedTuple

from truetune.generation.words import words
from truetune.parsing.json_reader import RowDecoder, parse_json
from truetune.parsing.limits import REPLY
from truetune.render.render_plan import THINK_END

Kind = Literal["number", "letter", "word", "json"]
FORMS = (
    "{}",
    "{}.",
    "**{}**",
    "Answer: {}",
    "**Answer: {}**",
    "The answer is {}.",
    "\\boxed{{{}}}",
    "#### {}",
)
"""In which models write an answer"""
LONGEST_NUMBER = 24
"""Digits of a number that is written otherwise"""
SHORT = 3
"""Words of a text that is an answer and nothing else"""
_NUMBER = r"[-+−]?\$?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?"
_BARE = re.compile(rf"[\s$€£*_(\"'\\]*({_NUMBER})\s*%?[\s*_$)\"'.\\]*")
_LEADING = re.compile(rf"[\s$*_(\"'\\]*({_NUMBER})(?!\w|[.,]\d|\s*[-+*/×÷=^:,;]\s*[\d(])")
_LETTER = re.compile(
    r"[\s*_(\[\"'$]*(?:\\text\{)?([A-J])(?![)\s]*[,;&/]\s*\(?[A-J]\b)"
    r"(?:\Z|[)\].:,;*_}\"'$]|\s+because\b|\s*\Z)"
)
_ONE = re.compile(rf"(?<![\w.,]){_NUMBER}(?![\w]|[.,]\d)")
_MARKS = (
    re.compile(r"####([^\n]*)"),
    re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}"),
    re.compile(r"<answer>(.*?)</answer>", re.DOTALL),
    re.compile(r"(?i:\banswer\**\s*(?:is\b|[:：])|答案[是为:：])([^\n]*)"),
)


class Final(NamedTuple):
    """A final answer."""

    kind: Kind
    value: str
    """Normalised: numbers without grouping, words without case and punctuation, JSON with sorted keys"""
    text: str
    """As it stands in the text"""


def final_of(text: str) -> Final | None:
    """The marked final answer of a text, the last one of the surest mark; the whole text where it is short or JSON.

    None where nothing tells it. Marks: ####, \\boxed{}, <answer>, `answer is`, `Answer:`.
    """
    text = text.rpartition(THINK_END)[2].strip()
    if text[:1] in ("{", "["):
        try:
            return Final(
                "json",
                json.dumps(parse_json(text, REPLY, exact_integers=True), sort_keys=True),
                text,
            )
        except ValueError:
            return None
    for mark in _MARKS:
        if found := mark.findall(text):
            return _of(found[-1].strip(), marked=True)
    return _of(text, marked=False)


def value_of(read: Any) -> tuple[Kind, str] | None:
    """A parser's reading as a number or a letter; None where it is neither."""
    if isinstance(read, bool):
        return None
    if isinstance(read, int | float | Decimal):
        return "number", _plain(str(read))
    if isinstance(read, str) and (found := _BARE.fullmatch(read)):
        return "number", _plain(found[1])
    if isinstance(read, str) and re.fullmatch(r"\s*\(?[A-J]\)?\s*", read):
        return "letter", read.strip(" ()\n")
    return None


def bare_value(text: str) -> tuple[Kind, str] | None:
    """The number or letter that a text is and nothing else: a reference in a column of values; None for any other.

    A parser that looks for a mark (`#### 42`) reads nothing of it, and it needs no reading.
    """
    final = final_of(text)
    is_value = final is not None and final.kind in ("number", "letter")
    return final[:2] if final is not None and is_value and final.text == text.strip() else None


def wrapped(final: Final) -> Iterator[tuple[str, str]]:
    """(name, text): ways in which models write an answer."""
    if final.kind == "json":
        yield (
            "JSON with other white space",
            json.dumps(parse_json(final.text, REPLY, exact_integers=True), indent=3),
        )
        return
    value = final.value if final.kind == "number" else final.text.strip(" .*")
    for form in FORMS:
        yield form.format("X"), form.format(value)
    if final.kind == "letter":
        yield "(X)", f"({value})"
        yield (
            "A good way ... The answer is X.",
            f"A good way is to try each one. The answer is {value}.",
        )
    if final.kind == "number":
        yield "There are 3 ... The answer is X.", f"There are 3 of 17 left. The answer is {value}."


def rewritten(gold: str, final: Final) -> Iterator[tuple[str, str]]:
    """(name, text): the gold itself, its number written otherwise: grouped, or with a currency."""
    at = gold.rfind(final.text)
    plain = final.kind == "number" and len(final.value) < LONGEST_NUMBER and "$" not in final.text
    if not plain or at < 0 or not (bare := _BARE.fullmatch(final.text)):
        return
    at += bare.start(1)
    before, after = gold[:at], gold[at + len(bare[1]) :]
    number = Decimal(final.value)
    if number == number.to_integral_value() and abs(number) >= 1000:
        form, other = ("X without commas", "") if "," in bare[1] else ("X with commas", ",")
        yield form, f"{before}{int(number):{other}}{after}"
    if not before.endswith(("$", "\\$", "{")) and number >= 0:
        yield "$X", f"{before}${bare[1]}{after}"


def holds(answer: str, gold: str) -> bool:
    """Does an answer give the final answer of the gold, in whatever form?"""
    final = final_of(gold)
    if final is None:
        wanted = words(gold)
        return bool(wanted) and _contains(words(answer), wanted)
    mine = final_of(answer)
    if mine is not None and mine[:2] == final[:2]:
        return True
    if final.kind == "number":
        found = _ONE.findall(answer)
        return bool(found) and _plain(found[-1]) == final.value
    if final.kind == "word":
        return _contains(words(answer), final.value.split())
    return final.kind == "json" and any(_json_in(answer, final.value))


def _of(text: str, *, marked: bool) -> Final | None:
    if found := _BARE.fullmatch(text):
        return Final("number", _plain(found[1]), text)
    if found := _LETTER.match(text):
        return Final("letter", found[1], found[1])
    if marked and (found := _LEADING.match(text)):
        return Final("number", _plain(found[1]), found[1])
    short = words(text)
    if not 0 < len(short) <= SHORT or "\n" in text:
        return None
    if numbers := _ONE.findall(text):
        return Final("number", _plain(numbers[0]), numbers[0]) if len(numbers) == 1 else None
    return Final("word", " ".join(short), text)


def _plain(number: str) -> str:
    """A number in one notation: 1,234.50 -> 1234.5"""
    try:
        found = Decimal(re.sub(r"[,$]", "", number).replace("−", "-"))
    except InvalidOperation:
        return number
    return (
        format(found.normalize(), "f")
        if found.is_finite() and abs(found.adjusted()) < 50
        else str(found)
    )


def _contains(said: list[str], wanted: list[str]) -> bool:
    return any(said[i : i + len(wanted)] == wanted for i in range(len(said) - len(wanted) + 1))


def _json_in(text: str, value: str) -> Iterator[bool]:
    """Of the JSON that begins at each of the first brackets: is it this one?"""
    for found in list(re.finditer(r"[{\[]", text))[:20]:
        try:
            yield (
                json.dumps(RowDecoder(REPLY).read_at(text, found.start()).value, sort_keys=True)
                == value
            )
        except ValueError:
            continue
