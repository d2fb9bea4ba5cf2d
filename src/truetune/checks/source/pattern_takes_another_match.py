r"""A pattern takes the wrong match, or the wrong part of it, as the answer.

## What it does
Runs the pattern that a script searches with over the predictions in the script or in a file next to it, the way the
script does: the first or the last match, and the group that it takes. `text.split()[0]` and `text.splitlines()[-1]` are
treated the same way. It fires if the result equals the reference far less often than after one change: the last match
instead of the first, another group, `re.IGNORECASE`, `re.DOTALL`, a comparison that ignores case or the full stop. The
change must turn at least a fifth of the rows right, and then at least three of ten rows must be right.

## Why it is bad
Right answers count as wrong. A model that was tuned on worked solutions writes numbers on the way to its result: the
first one is rarely the answer, and accuracy is near 0. The base model, which answers with only a number, is scored
well.

## Example
```python
import re

ROWS = [
    {"completion": "3 boxes of 4 are 12. The answer is 12.", "answer": "12"},
    {"completion": "7 days of 24 hours are 168. The answer is 168.", "answer": "168"},
    {"completion": "2 times 9 is 18. The answer is 18.", "answer": "18"},
    {"completion": "5 of 40 are gone: 35. The answer is 35.", "answer": "35"},
    {"completion": "6 rows of 6 are 36. The answer is 36.", "answer": "36"},
    {"completion": "80 less 11 is 69. The answer is 69.", "answer": "69"},
    {"completion": "4 and 5 are 9. The answer is 9.", "answer": "9"},
    {"completion": "10 of 3 are 30. The answer is 30.", "answer": "30"},
]
right = 0
for row in ROWS:
    found = re.search(r"\d+", row["completion"])
    right += bool(found) and found.group() == row["answer"]
```

## Use instead
```python
import re

ROWS = [
    {"completion": "3 boxes of 4 are 12. The answer is 12.", "answer": "12"},
    {"completion": "7 days of 24 hours are 168. The answer is 168.", "answer": "168"},
    {"completion": "2 times 9 is 18. The answer is 18.", "answer": "18"},
    {"completion": "5 of 40 are gone: 35. The answer is 35.", "answer": "35"},
    {"completion": "6 rows of 6 are 36. The answer is 36.", "answer": "36"},
    {"completion": "80 less 11 is 69. The answer is 69.", "answer": "69"},
    {"completion": "4 and 5 are 9. The answer is 9.", "answer": "9"},
    {"completion": "10 of 3 are 30. The answer is 30.", "answer": "30"},
]
right = 0
for row in ROWS:
    found = re.findall(r"\d+", row["completion"])
    right += bool(found) and found[-1] == row["answer"]
```

## Fix safety
There is no automatic fix: score base and tuned model again with the same extraction, and read ten rows of each by hand.

## References
- EleutherAI/lm-evaluation-harness, the filters `strict-match` and `flexible-extract` of gsm8k
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.better_readings_of_predictions import (
    OtherReading,
    better_reading_of_predictions,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.which_regex_match_script_takes import (
    PART_NAMES,
    PARTS,
    TakenMatch,
    regex_searches,
    taken_matches,
)
from truetune.source.parsed_source_file import Module

SHOWN_PATTERN = 80
"""Characters of a pattern in a message"""


def _searches_and_splits(module: Module) -> Iterator[ast.AST]:
    """Where a text is searched by a pattern, or divided."""
    yield from (call.node for call in module.methods(*PARTS))
    if module.mentions("re"):
        yield from (call.node for call in regex_searches(module))


class PatternTakesAnotherMatch(SourceRule):
    code = "SRC349"
    fault = Fault.RIGHT_ANSWERS_COUNTED_WRONG
    symptoms = ("odd-metrics", "good-here-bad-there")
    severity = "error"
    looks_at = CodePlaces("searches of a text by a pattern", _searches_and_splits)

    def findings(self) -> Iterator[Finding]:
        judged_nodes: set[ast.AST] = set()
        for match in taken_matches(self.subject):
            other_reading = (
                None
                if match.node in judged_nodes
                else better_reading_of_predictions(self.subject, match)
            )
            if other_reading is None:
                continue
            judged_nodes.add(match.node)
            yield self.finding(
                f"{_taken_match_in_words(match)} in `{match.column}` equals `{other_reading.reference}` in"
                f" {other_reading.own:,} of {other_reading.of:,} rows; {other_reading.reading.what}: in"
                f" {other_reading.other:,}. Right answers count as wrong",
                other_reading.reading.remedy,
                evidence=list(_evidence(other_reading)),
                cases=[case_of_node(self.subject, match.node)],
            )


def _taken_match_in_words(match: TakenMatch) -> str:
    """The match that a script takes, in words: the last number, or which match of which pattern and
    group.
    """
    name = PART_NAMES.get(match.pattern.pattern)
    if name is not None:
        return f"the {match.which} {name}"
    part = f", group {match.group}" if match.group else ""
    return f"the {match.which} match of {match.pattern.pattern[:SHOWN_PATTERN]!r}{part}"


def _evidence(other_reading: OtherReading) -> Iterator[str]:
    """Evidence: where the rows stand, one of them, and where the script's reading is right."""
    text, taken, reference = other_reading.example
    yield f"rows of {other_reading.source}"
    yield f"one of them ends {text!r}: the script takes {taken!r}, and `{other_reading.reference}` is {reference!r}"
    if other_reading.elsewhere is not None:
        name, right, of = other_reading.elsewhere
        yield f"in {name} the script gets {right:,} of {of:,} rows right: those answers have another format"
