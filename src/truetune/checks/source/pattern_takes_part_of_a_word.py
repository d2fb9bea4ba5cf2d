r"""A pattern for a single character matches inside a word or a number.

## What it does
Runs the patterns of a script that match one character (`[ABCD]`, `\d`) over the rows that the script reads or writes:
the column that is searched, or the one that the searched text is written to. It fires if the match is inside a word or
a number in at least 5 % of the texts, and in at least three: the `A` in `Answer: C`, the `1` in `10/10`.

## Why it is bad
The first such character is scored. Answers that begin with `Answer` or `Because` count as A or B, and a full score of
10 counts as 1.

## Example
```python
import re

ROWS = [
    {"prediction": "Answer: C", "gold": "C"},
    {"prediction": "Answer: B", "gold": "B"},
    {"prediction": "Because of the tide, D.", "gold": "D"},
    {"prediction": "C", "gold": "C"},
    {"prediction": "Answer: A", "gold": "A"},
    {"prediction": "B", "gold": "B"},
    {"prediction": "D", "gold": "D"},
    {"prediction": "Answer: D", "gold": "D"},
]
right = 0
for row in ROWS:
    found = re.search(r"[ABCD]", row["prediction"])
    right += bool(found) and found.group() == row["gold"]
```

## Use instead
```python
import re

ROWS = [
    {"prediction": "Answer: C", "gold": "C"},
    {"prediction": "Answer: B", "gold": "B"},
    {"prediction": "Because of the tide, D.", "gold": "D"},
    {"prediction": "C", "gold": "C"},
    {"prediction": "Answer: A", "gold": "A"},
    {"prediction": "B", "gold": "B"},
    {"prediction": "D", "gold": "D"},
    {"prediction": "Answer: D", "gold": "D"},
]
right = 0
for row in ROWS:
    found = re.search(r"\b[ABCD]\b", row["prediction"])
    right += bool(found) and found.group() == row["gold"]
```

## Fix safety
There is no automatic fix. `\b` around the pattern suffices if the letter never occurs as a word; `A` is an English
word, so search after a fixed word (`Answer:`) if the answers have one. Scores change: score other models again the same
way.

## References
- https://docs.python.org/3/library/re.html (`search` gives the first place that matches)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.answer_reading_patterns import (
    columns_of_text,
    compiled_pattern_of_call,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.scored_rows import rows_with_text_columns
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

ONE_CHARACTER = re.compile(r"\(?(?:\[[^\]\[]{1,40}\]|\\d)\)?")
"""A pattern that matches one character, also in a group"""
# Chosen, not measured: three words that hold the letter are no chance of a single row, and a twentieth moves a score.
MIN_PARTS, MIN_SHARE = 3, 0.05
"""Texts in which the match is a part of a word or number, and their share of the texts with a match"""
PROOF_CHARACTERS = 60
"""Of a text, in a message"""


class PartMatches(NamedTuple):
    """What a pattern finds in the texts of a column."""

    column: str
    parts: list[str]
    """Texts in which it finds a part of a word or number"""
    found: int
    """Texts in which it finds something"""


def _searches_for_one_character(module: Module) -> Iterator[Call]:
    """Calls that search a text for one character."""
    for call in module.all_calls:
        if call.named("re.search") or call.method == "search":
            pattern = compiled_pattern_of_call(module, call)
            if pattern is not None and ONE_CHARACTER.fullmatch(pattern.pattern):
                yield call


def _pattern_searches(module: Module) -> Iterator[ast.AST]:
    """Where a text is searched by a pattern."""
    if module.mentions("re"):
        calls = (
            call for call in module.all_calls if call.named("re.search") or call.method == "search"
        )
        yield from (call.node for call in calls)


class PatternTakesPartOfAWord(SourceRule):
    code = "SRC273"
    fault = Fault.RIGHT_ANSWERS_COUNTED_WRONG
    symptoms = ("odd-metrics",)
    severity = "error"
    looks_at = CodePlaces("searches of a text by a pattern", _pattern_searches)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if not module.mentions("re"):
            return
        for call in _searches_for_one_character(module):
            pattern = compiled_pattern_of_call(module, call)
            text = call.argument(0 if call.method == "search" else 1, "string")
            matches = None
            if pattern is not None and text is not None:
                matches = _part_matches_if_frequent(module, pattern, text)
            if pattern is None or matches is None:
                continue
            match = pattern.search(matches.parts[0])
            taken = match.group() if match else ""
            first = text_around(matches.parts[0], match.start() if match else 0)
            yield self.finding(
                f"{pattern.pattern!r} matches inside a word or number in {len(matches.parts):,} of {matches.found:,}"
                f" texts of `{matches.column}`, for example {taken!r} in {first!r}: the score is wrong",
                _remedy(pattern),
                cases=[case_of_node(module, call.node)],
                count=len(matches.parts),
                total=matches.found,
            )


def _part_matches_if_frequent(
    module: Module, pattern: re.Pattern[str], text: ast.expr
) -> PartMatches | None:
    """What a pattern takes of the texts that it is run over; None where it hardly ever takes a part."""
    for column in columns_of_text(module, text):
        rows = rows_with_text_columns(module, (column,))
        texts = [row[column] for row in rows.rows] if rows is not None else []
        texts_and_matches = [(one, match) for one in texts if (match := pattern.search(one))]
        parts = [one for one, match in texts_and_matches if _is_part_of_word(one, match)]
        if len(parts) >= max(MIN_PARTS, MIN_SHARE * len(texts_and_matches)):
            return PartMatches(column, parts, len(texts_and_matches))
    return None


def _is_part_of_word(text: str, match: re.Match[str]) -> bool:
    """Does the character continue as a word of letters, or as a number?"""
    character = match.group()
    before, after = text[: match.start()][-1:], text[match.end() :][:1]
    if character.isdigit():
        return after.isdigit() or before.isdigit()
    return character.isalpha() and (after.isalpha() or before.isalpha())


def text_around(text: str, place: int) -> str:
    """What stands around a place of a text, from the begin of a word on, so that the word at the place is in it."""
    begin = max(0, place - PROOF_CHARACTERS // 2)
    end = begin + PROOF_CHARACTERS
    # A word that is cut in two at the begin or at the end is left out, unless it is the one at the place.
    if begin:
        begin = max(begin, text.find(" ", begin, place) + 1)
    if end < len(text):
        cut = text.rfind(" ", place, end)
        end = cut if cut > place else end
    return ("... " if begin else "") + text[begin:end].strip() + (" ..." if end < len(text) else "")


def _remedy(pattern: re.Pattern[str]) -> str:
    """The remedy: the pattern with borders of a word, after the word that names the answer."""
    bare = pattern.pattern.strip("()")
    if bare == r"\d":
        return (
            r"match the whole number after a fixed word: re.search(r'Score:\s*(\d+)', text).group(1), or ask the judge"
            " for JSON"
        )
    return (
        rf"match only whole words: r'\b({bare})\b'; or, if the answers have a fixed word before the letter,"
        rf" re.search(r'(?:Answer|answer is):?\s*\(?({bare})\b', text).group(1)"
    )
