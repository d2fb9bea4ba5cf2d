"""Finds what a text gives as its final answer, by the marks that people write, and other ways to write the same.

Used to test parsers, and not as one: it knows what the final answer of a *gold* row is, whatever parser the user names,
so that both can be compared. The marks are those of the public sets (GSM8K's ####, MATH's \\boxed{}, <answer> tags,
"The answer is"). Where a text has none, only a short one is taken for an answer.

The trade-off: what is not clearly a final answer is None. A parser is then judged on fewer rows, and never on a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, NamedTuple

from truetune.generation.split_words import contains_word_sequence, split_words
from truetune.parsing.input_limits import REPLY
from truetune.parsing.parse_json_within_limits import RowDecoder, parse_json
from truetune.render.unfilled_example_plan import THINK_END

AnswerKind = Literal["number", "letter", "word", "json"]
ANSWER_FORMS = (
    "{}",
    "{}.",
    "**{}**",
    "Answer: {}",
    "**Answer: {}**",
    "The answer is {}.",
    "\\boxed{{{}}}",
    "#### {}",
)
"""In which models write an answer: {} is its place"""
MAX_RESPELLED_DIGITS = 24
"""Digits of a number that is written otherwise: nobody groups longer ones (hashes, ids)"""
# Chosen, not measured: "New York City" is one; a sentence of four words may hold any number.
MAX_ANSWER_WORDS = 3
"""Words of a text that is an answer and nothing else"""
MAX_PLAIN_EXPONENT = 50
"""Digits before the point up to which a number is written out"""
MAX_JSON_STARTS = 20
"""Brackets of a text at which JSON is looked for: a text of brackets would take the square of its length"""
_NUMBER = r"[-+−]?\$?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?"
_WHOLE_NUMBER_TEXT = re.compile(rf"[\s$€£*_(\"'\\]*({_NUMBER})\s*%?[\s*_$)\"'.\\]*")
# A number with words behind it (`42 apples`), and no term of a sum: behind a mark `3 + 4 = 7` is not 3.
_LEADING_NUMBER = re.compile(rf"[\s$*_(\"'\\]*({_NUMBER})(?!\w|[.,]\d|\s*[-+*/×÷=^:,;]\s*[\d(])")
# A letter of a choice, and none of several (`A, B or C`).
_LETTER = re.compile(
    r"[\s*_(\[\"'$]*(?:\\text\{)?([A-J])(?![)\s]*[,;&/]\s*\(?[A-J]\b)"
    r"(?:\Z|[)\].:,;*_}\"'$]|\s+because\b|\s*\Z)"
)
_NUMBER_IN_TEXT = re.compile(rf"(?<![\w.,]){_NUMBER}(?![\w]|[.,]\d)")
# The surest first: #### and \boxed{} are written for readers by machine, "the answer is" is prose.
_MARKS = (
    re.compile(r"####([^\n]*)"),
    re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}"),
    re.compile(r"<answer>(.*?)</answer>", re.DOTALL),
    re.compile(r"(?i:\banswer\**\s*(?:is\b|[:：])|答案[是为:：])([^\n]*)"),
)

MARK_NAMES = ("####", "\\boxed{}", "<answer>")
"""Names of the first of _MARKS, in their order: the marks that are written for readers by machine. `answer is` is
prose, which no script looks for alone"""


class FinalAnswer(NamedTuple):
    """A final answer."""

    kind: AnswerKind
    value: str
    """Normalised: numbers without grouping, words without case and punctuation, JSON with sorted keys"""
    text: str
    """As it stands in the text"""


def find_final_answer(text: str) -> FinalAnswer | None:
    """The marked final answer of a text, the last one of the surest mark; the whole text where it is short or JSON.

    None where nothing tells it. Marks: ####, \\boxed{}, <answer>, `answer is`, `Answer:`.
    """
    text = text.rpartition(THINK_END)[2].strip()
    if text[:1] in ("{", "["):
        try:
            return FinalAnswer(
                "json",
                json.dumps(parse_json(text, REPLY, exact_integers=True), sort_keys=True),
                text,
            )
        except ValueError:
            return None
    for mark in _MARKS:
        # The last one: answers restate, and "The answer is" may open a thought that is given up.
        marked = mark.findall(text)
        if marked:
            return _classify_answer(marked[-1].strip(), is_marked=True)
    return _classify_answer(text, is_marked=False)


def answer_marks(text: str) -> tuple[str, ...]:
    """Which marks of `MARK_NAMES` stand in a text behind its thoughts."""
    said = text.rpartition(THINK_END)[2]
    # Not strict: the last of _MARKS, `answer is`, has no name.
    pairs = zip(MARK_NAMES, _MARKS, strict=False)
    return tuple(name for name, mark in pairs if mark.search(said))


def parsed_answer_as_number_or_letter(reading: Any) -> tuple[AnswerKind, str] | None:
    """A parser's reading as a number or a letter; None where it is neither."""
    # A bool is an int in Python, and no number that a user means.
    if isinstance(reading, bool):
        return None
    if isinstance(reading, int | float | Decimal):
        return "number", _normalise_number(str(reading))
    if not isinstance(reading, str):
        return None
    number = _WHOLE_NUMBER_TEXT.fullmatch(reading)
    if number:
        return "number", _normalise_number(number[1])
    if re.fullmatch(r"\s*\(?[A-J]\)?\s*", reading):
        return "letter", reading.strip(" ()\n")
    return None


def value_of_bare_text(text: str) -> tuple[AnswerKind, str] | None:
    """The number or letter that a text is and nothing else: a reference in a column of values; None for any other.

    A parser that looks for a mark (`#### 42`) reads nothing of it, and it needs no reading.
    """
    final = find_final_answer(text)
    if final is None or final.kind not in ("number", "letter") or final.text != text.strip():
        return None
    return final.kind, final.value


def answer_phrasings(final: FinalAnswer) -> Iterator[tuple[str, str]]:
    """(name, text): ways in which models write an answer."""
    if final.kind == "json":
        yield (
            "JSON with other white space",
            json.dumps(parse_json(final.text, REPLY, exact_integers=True), indent=3),
        )
        return
    value = final.value if final.kind == "number" else final.text.strip(" .*")
    for form in ANSWER_FORMS:
        yield form.format("X"), form.format(value)
    if final.kind == "letter":
        yield "(X)", f"({value})"
        yield (
            "A good way ... The answer is X.",
            f"A good way is to try each one. The answer is {value}.",
        )
    if final.kind == "number":
        yield "There are 3 ... The answer is X.", f"There are 3 of 17 left. The answer is {value}."


def number_spellings(gold: str, final: FinalAnswer) -> Iterator[tuple[str, str]]:
    """(name, text): the gold itself, its number written otherwise: grouped, or with a currency."""
    # From the right: a gold may name its number in the reasoning too.
    at = gold.rfind(final.text)
    bare = _WHOLE_NUMBER_TEXT.fullmatch(final.text)
    is_short = len(final.value) < MAX_RESPELLED_DIGITS
    if final.kind != "number" or not is_short or "$" in final.text or at < 0 or bare is None:
        return
    at += bare.start(1)
    before, after = gold[:at], gold[at + len(bare[1]) :]
    number = Decimal(final.value)
    if number == number.to_integral_value() and abs(number) >= 1000:
        form, grouping = ("X without commas", "") if "," in bare[1] else ("X with commas", ",")
        yield form, f"{before}{int(number):{grouping}}{after}"
    # In LaTeX a dollar sign would begin a formula.
    if not before.endswith(("$", "\\$", "{")) and number >= 0:
        yield "$X", f"{before}${bare[1]}{after}"


def holds_final_answer(answer: str, gold: str) -> bool:
    """Does an answer give the final answer of the gold, in whatever form?"""
    # Without a marked answer the gold as a whole must stand in the answer.
    final = find_final_answer(gold)
    if final is None:
        wanted = split_words(gold)
        return bool(wanted) and contains_word_sequence(split_words(answer), wanted)
    own = find_final_answer(answer)
    if own is not None and (own.kind, own.value) == (final.kind, final.value):
        return True
    if final.kind == "number":
        numbers = _NUMBER_IN_TEXT.findall(answer)
        return bool(numbers) and _normalise_number(numbers[-1]) == final.value
    if final.kind == "word":
        return contains_word_sequence(split_words(answer), final.value.split())
    return final.kind == "json" and any(_compare_json_in_text(answer, final.value))


def _classify_answer(text: str, *, is_marked: bool) -> FinalAnswer | None:
    """What kind of answer a text is, and its value.

    Args:
        text: what stands behind a mark, or a whole text.
        is_marked: it stands behind one: then a number with words behind it is the answer too.
    """
    number = _WHOLE_NUMBER_TEXT.fullmatch(text)
    if number:
        return FinalAnswer("number", _normalise_number(number[1]), text)
    letter = _LETTER.match(text)
    if letter:
        return FinalAnswer("letter", letter[1], letter[1])
    leading = _LEADING_NUMBER.match(text) if is_marked else None
    if leading:
        return FinalAnswer("number", _normalise_number(leading[1]), leading[1])
    short = split_words(text)
    if not 0 < len(short) <= MAX_ANSWER_WORDS or "\n" in text:
        return None
    # "3 apples" is a number; of "3 of 17" nobody knows which.
    numbers = _NUMBER_IN_TEXT.findall(text)
    if len(numbers) > 1:
        return None
    if numbers:
        return FinalAnswer("number", _normalise_number(numbers[0]), numbers[0])
    return FinalAnswer("word", " ".join(short), text)


def _normalise_number(number: str) -> str:
    """A number in one notation: 1,234.50 -> 1234.5"""
    try:
        value = Decimal(re.sub(r"[,$]", "", number).replace("−", "-"))
    except InvalidOperation:
        return number
    # 1e999999 is a few characters, and a megabyte where it is written out.
    if value.is_finite() and abs(value.adjusted()) < MAX_PLAIN_EXPONENT:
        return format(value.normalize(), "f")
    return str(value)


def _compare_json_in_text(text: str, value: str) -> Iterator[bool]:
    """For the JSON that begins at each of the first brackets of a text: is it this value?"""
    for bracket in list(re.finditer(r"[{\[]", text))[:MAX_JSON_STARTS]:
        try:
            decoded = RowDecoder(REPLY).read_at(text, bracket.start()).value
        except ValueError:
            continue
        yield json.dumps(decoded, sort_keys=True) == value
