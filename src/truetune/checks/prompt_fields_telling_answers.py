"""Finds the fields of prompts (`Group: FIN-BILLING`, `[billing]`) whose value alone tells the
answer of nearly all rows.

A field is a line `Group: FIN-BILLING`, a pair `group=billing` or `"group": "billing"`, a tag `[billing]`, an element
`<group>billing</group>`, a path or an address, the first or the last word. A field that tells the answer of nearly
every row, beside a text that varies, is what the model will read instead of the text.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# Chosen, not measured: names of fields have one to three words. At double, whole questions before a colon are names.
NAME_LENGTH = 30
# Chosen, not measured: longer values are texts, and seldom two rows share one.
VALUE_LENGTH = 120
LINE = re.compile(rf"^[\W_]*(\w[\w ./-]{{0,{NAME_LENGTH}}}?)[*_`\"]*\s*(?::|=|\t|\|)\s*(\S.*)$")
PAIR = re.compile(r"\"?\b(\w[\w-]{1,30})\"?\s*[:=]\s*(\"[^\"\n]*\"|[^\s,;|\"]+)")
ELEMENT = re.compile(rf"<(\w{{1,{NAME_LENGTH}}})>\s*([^<\n]{{1,{VALUE_LENGTH}}}?)\s*</\1>")
TAG = re.compile(r"(?<![\[({<])[\[({<]+(\w[\w /-]{0,40})[\])}>]+|(?<!\S)#(\w+)")
ADDRESS = re.compile(r"(?<!\S)\S*\w[/@\\]\w\S*")
LOG_LINE = re.compile(
    r"^\W{0,3}(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?\S{0,12})\W{0,3}\s"
    r"{0,3}(?:[^\s:]{1,60}\s{1,8}){0,3}[^\s:=]{1,60}:\s{1,3}(?=\S+\s+\S)"
)
"""`Oct  7 19:51:22 web-1 kernel: TCP: out of memory`: a time, a machine, a program, and its message of several words"""
DIGITS = re.compile(r"\d+")
WORD = re.compile(r"[^\W_]+")
# Chosen, not measured: a field that half of the rows lack tells no more than half of the answers.
SHARE = 0.5
"""Share of the rows that have the field, at least"""
# Chosen: up to one row in fifty may be broken. At 0.9 a good feature of the question would be called a leak.
TELLS = 0.98
"""Share of those rows whose answer the field tells: what is left may be broken rows"""
# Chosen, not measured. At one and a half, ids would be classes; at six, sets of some hundred rows with 40 classes are
# missed.
ROWS_A_VALUE = 3
"""Rows that a value has on average: of fewer it is no field with classes but the question"""
CONSTANT = 0.5
"""Share of the rows from which a line is no part of the question"""
QUESTION_WORDS = 4
"""Words that the rest of the prompt has, by which the answer could be known without the field"""
VARIED = 0.5
"""Share of the rows whose rest is unlike that of the others"""


@dataclass(frozen=True, slots=True)
class TellingField:
    """A field that tells the answers."""

    name: str
    rows: int
    """Rows that have it"""
    told: int
    """Rows whose answer it tells"""
    is_copy: bool
    """Its value is the answer, or holds its words; else each value goes with one answer"""
    example: int
    """The number of a row that has it"""
    value: str
    """In that row"""


def split_prompt_fields(prompt: str) -> dict[str, str]:
    """The fields of a prompt by name; of several of one name the first."""
    names: dict[str, str] = {}
    lines = [line.strip() for line in prompt.splitlines() if line.strip()]
    for name, value in _fields_of_prompt(prompt, lines):
        names.setdefault(name, value[:VALUE_LENGTH].strip().strip('"'))
    return names


def _fields_of_prompt(prompt: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, value) of all that may be a field: lines, pairs, elements, the first tag, and the last line and words."""
    for line in lines:
        yield from _fields_of_line(line)
    for element in ELEMENT.finditer(prompt):
        yield f"the element <{element[1]}>", element[2]
    tag = TAG.search(prompt)
    if tag is not None:
        yield "the first tag in brackets", tag[1] or tag[2]
    address = ADDRESS.search(prompt)
    if address is not None:
        yield "the first path or address", address[0]
    if lines:
        yield "the last line", lines[-1]
        words = WORD.findall(prompt)
        if words:
            yield "the first word", words[0]
            yield "the last word", words[-1]


def _fields_of_line(line: str) -> Iterator[tuple[str, str]]:
    """(name, value) of a line. A program before its message in a log is no field: what follows is the text itself."""
    log = LOG_LINE.match(line)
    field = LINE.match(line) if log is None else None
    if field is not None:
        yield f"the line {field[1].strip()!r}", field[2]
    text = line if log is None else line[log.end() :]
    for pair in PAIR.finditer(text):
        # In a message, `TCP: out of memory` is no pair, and `dev=sda1` is one.
        if log is None or not text[pair.start(2) - 1].isspace():
            yield f"the field {pair[1]!r}", pair[2]


def find_fields_telling_answers(
    prompts: Sequence[str], answers: Sequence[str]
) -> list[TellingField]:
    """The fields that tell the answers of nearly all rows that have them, the most frequent first.

    Rows with the same prompt count once. A field counts only beside a text that varies and could be judged itself.
    """
    # The last of equal prompts: dict keeps one row for each.
    distinct = list(dict(zip(prompts, range(len(prompts)), strict=True)).values())
    values: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for row in distinct:
        for name, value in split_prompt_fields(prompts[row]).items():
            values[name][row] = value
    constant = _constant_lines([prompts[row] for row in distinct])
    labels = _words_of_class_answers([answers[row] for row in distinct])
    fields = []
    for name, by_row in values.items():
        if len(by_row) < SHARE * len(distinct):
            continue
        field = _telling_field_or_none(name, by_row, answers, labels)
        if field is not None and _does_text_vary_without_field(by_row, prompts, constant):
            fields.append(field)
    return sorted(fields, key=lambda field: (-field.rows, not field.is_copy, len(field.value)))


def _telling_field_or_none(
    name: str, by_row: Mapping[int, str], answers: Sequence[str], labels: frozenset[str]
) -> TellingField | None:
    """The field where it tells the answers of nearly all rows that have it; else None."""
    commonest = Counter(answers[row] for row in by_row).most_common(1)[0][1]
    # Nine of ten rows with one answer: whatever stands in them seems to tell it.
    if commonest >= 0.9 * len(by_row):
        return None  # any field tells what all rows have
    copied = sum(
        _does_value_copy_answer(value, answers[row], labels) for row, value in by_row.items()
    )
    field_copies = copied
    if labels and copied < TELLS * len(by_row):
        field_copies = _count_rows_told_by_value(by_row, answers)
    if field_copies < TELLS * len(by_row):
        return None
    example = next(iter(by_row))
    return TellingField(
        name, len(by_row), field_copies, field_copies == copied, example, by_row[example]
    )


def _does_value_copy_answer(value: str, answer: str, labels: frozenset[str]) -> bool:
    """Is the value the answer; or, where answers are labels, does it hold this label's words and no other's?"""
    answer_words, value_words = (
        _lowercase_words_padded_with_spaces(answer),
        _lowercase_words_padded_with_spaces(value),
    )
    if not answer_words:
        return value.strip().casefold() == answer.strip().casefold()
    if value_words.strip() == answer_words.strip():
        return True
    if not labels or answer_words not in value_words:
        return False
    return not any(
        other in value_words
        for other in labels
        if other != answer_words and other not in answer_words
    )


def _count_rows_told_by_value(by_row: Mapping[int, str], answers: Sequence[str]) -> int:
    """The number of rows whose answer is that of most other rows with the same value, as it stands
    or without its numbers.
    """
    matches = 0
    # Without its digits: `ticket 4711` and `ticket 4712` are one value of a field.
    for form in (str.casefold, _without_case_and_numbers):
        groups: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for row, value in by_row.items():
            groups[form(value)][answers[row]] += 1
        if 2 <= len(groups) <= len(by_row) / ROWS_A_VALUE:
            likely = (max(counts.values()) for counts in groups.values() if counts.total() > 1)
            matches = max(matches, sum(likely))
    return matches


def _does_text_vary_without_field(
    by_row: Mapping[int, str], prompts: Sequence[str], constant: frozenset[str]
) -> bool:
    """Is there, without the field and the lines that all rows have, a text that varies?"""
    rests = []
    for row, value in by_row.items():
        lines = (line for line in prompts[row].splitlines() if line.strip() not in constant)
        rests.append(" ".join(line.replace(value, " ") for line in lines))
    words = sorted(len(WORD.findall(rest)) for rest in rests)
    varied = len({_without_case_and_numbers(rest) for rest in rests})
    return words[len(words) // 2] >= QUESTION_WORDS and varied >= VARIED * len(rests)


def _constant_lines(prompts: Sequence[str]) -> frozenset[str]:
    """The lines that most prompts have."""
    counts = Counter(line for prompt in prompts for line in {*map(str.strip, prompt.splitlines())})
    return frozenset(line for line, rows in counts.items() if rows >= CONSTANT * len(prompts))


def _words_of_class_answers(answers: Sequence[str]) -> frozenset[str]:
    """The words of each answer where the answers are classes; empty where they are not."""
    distinct = set(answers)
    if len(distinct) < 2 or len(distinct) * ROWS_A_VALUE > len(answers):
        return frozenset()
    return frozenset(filter(None, map(_lowercase_words_padded_with_spaces, distinct)))


def _lowercase_words_padded_with_spaces(text: str) -> str:
    """The words of a text in lower case, between spaces: ` eu billing 2 `."""
    words = " ".join(WORD.findall(text)).casefold()
    return f" {words} " if words else ""


def _without_case_and_numbers(text: str) -> str:
    """A text without case and numbers."""
    return DIGITS.sub("#", text.casefold()).strip()
