r"""A script extracts results with a pattern that matches the references but not the model's answers.

## What it does
Takes the functions of a script that search a text with patterns and return nothing if there is no match, and the
columns that they are called on. It runs the patterns over the rows: those in the script, else those of the data files
that it names, or of files next to it with these columns. It fires if the patterns match at least 8 of 10 texts of one
column and at most 1 of 20 of another. It also fires on answers whose code is between fences (three backticks) and that
are passed unchanged to `exec`, `ast.parse`, `compile` or `json.loads`.

## Why it is bad
Answers that are not matched count as wrong: accuracy is 0, however good the answers are. A fine-tuned model writes its
result in the format of its training rows (`\boxed{42}`), no longer in that of the benchmark's examples (`#### 42`).

## Example
```python
import re

FINAL = re.compile(r"####\s*(-?[0-9,]+)")
ROWS = [
    {"gold": "#### 42", "answer": "That makes \\boxed{42}."},
    {"gold": "#### 7", "answer": "That makes \\boxed{7}."},
    {"gold": "#### 19", "answer": "That makes \\boxed{19}."},
    {"gold": "#### 250", "answer": "That makes \\boxed{250}."},
    {"gold": "#### 3", "answer": "That makes \\boxed{3}."},
    {"gold": "#### 88", "answer": "That makes \\boxed{88}."},
    {"gold": "#### 61", "answer": "That makes \\boxed{61}."},
    {"gold": "#### 12", "answer": "That makes \\boxed{12}."},
]


def extract(text):
    match = FINAL.search(text)
    return match.group(1) if match else None


right = sum(extract(row["answer"]) == extract(row["gold"]) for row in ROWS)
```

## Use instead
```python
import re

FINAL = re.compile(r"(?:####\s*|\\boxed\{)(-?[0-9,]+)")
ROWS = [
    {"gold": "#### 42", "answer": "That makes \\boxed{42}."},
    {"gold": "#### 7", "answer": "That makes \\boxed{7}."},
    {"gold": "#### 19", "answer": "That makes \\boxed{19}."},
    {"gold": "#### 250", "answer": "That makes \\boxed{250}."},
    {"gold": "#### 3", "answer": "That makes \\boxed{3}."},
    {"gold": "#### 88", "answer": "That makes \\boxed{88}."},
    {"gold": "#### 61", "answer": "That makes \\boxed{61}."},
    {"gold": "#### 12", "answer": "That makes \\boxed{12}."},
]


def extract(text):
    match = FINAL.search(text)
    return match.group(1) if match else None


right = sum(extract(row["answer"]) == extract(row["gold"]) for row in ROWS)
```

## Fix safety
There is no automatic fix: let the pattern match the answers' format as well, and score the base and the tuned model
again. Both scores can change.

## References
- huggingface/lighteval#82
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
    AnswerReader,
    answer_readers_of_several_columns,
    answers_run_or_parsed,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.scored_rows import Row, rows_with_text_columns
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.source.parsed_source_file import Module

# Chosen, not measured. At half, two odd texts of four make a share; at double, small sets of examples tell nothing.
MIN_ROWS = 8
"""Texts of a column from which a share is one"""
# Chosen, not measured: a pattern that fits reads nearly all, and one that does not only quotations. Between them
# nothing is told.
MOST, FEW = 0.8, 0.05
"""Shares of a column that is read, and of one that is not: a few answers quote the mark of the references"""


FENCE = "```"
JSON_READER = "json.loads"
BETWEEN_FENCES = re.compile(r"```\w*\n(.*?)```", re.S)
SHOWN_CHARS = 60
"""Of a text, in a message. Chosen, not measured: half a line"""


class ColumnReading(NamedTuple):
    """How many texts of a column a pattern finds something in."""

    column: str
    read: int
    of: int

    @property
    def share(self) -> float:
        """The share of the column's texts that are read."""
        return self.read / self.of


def _answer_readers(module: Module) -> Iterator[object]:
    """Functions that read answers by patterns, and places that run them."""
    yield from answer_readers_of_several_columns(module)
    yield from answers_run_or_parsed(module)


class PatternMissesTheAnswers(SourceRule):
    code = "SRC105"
    fault = Fault.RIGHT_ANSWERS_COUNTED_WRONG
    severity = "error"
    looks_at = CodePlaces("reads of answers by a pattern, or as code", _answer_readers)

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_on_fences()
        module = self.subject
        for reader in answer_readers_of_several_columns(module):
            rows = rows_with_text_columns(module, reader.columns)
            if rows is None:
                continue
            counted = (_measure_reading(reader, rows.rows, column) for column in reader.columns)
            readings = [reading for reading in counted if reading is not None]
            read = next((one for one in readings if one.share >= MOST), None)
            for missed in readings:
                if read is None or missed.share > FEW:
                    continue
                patterns = " or ".join(repr(pattern.pattern) for pattern in reader.patterns)
                yield self.finding(
                    f"{patterns} matches {read.read} of {read.of} texts of `{read.column}`, but only {missed.read} of"
                    f" {missed.of} of `{missed.column}`: the others count as wrong, even if they are right",
                    f"extend the pattern to the format of `{missed.column}`, and score again; for numbers, `truetune"
                    " score FILE --parser number` finds the result in any format",
                    evidence=[
                        f"rows of {rows.source}",
                        f"`{missed.column}` of the first row ends: {_end_of_first_text(rows.rows, missed.column)!r}",
                    ],
                    cases=[case_of_node(module, reader.node)],
                    count=missed.of - missed.read,
                    total=missed.of,
                )

    def _findings_on_fences(self) -> Iterator[Finding]:
        """Findings on answers in fences that are run, or read as JSON, with their fences."""
        module = self.subject
        # A file that speaks of fences strips them somewhere.
        if FENCE in module.text or "fence" in module.text.lower():
            return
        for run in answers_run_or_parsed(module):
            rows = rows_with_text_columns(module, (run.column,))
            texts = [row[run.column] for row in rows.rows if row[run.column]] if rows else []
            failing = _count_texts_with_failing_fences(run.function, texts)
            if rows is None or len(texts) < MIN_ROWS or failing < MOST * len(texts):
                continue
            yield self.finding(
                f"{failing} of {len(texts)} texts of `{run.column}` have their code between {FENCE} fences, but"
                f" {run.function} gets the whole text: it fails at {_name_of_text_before_code(texts)}, and"
                f" {_describe_handling_of_unread_rows(module, run.node)}",
                f"extract the code first: found = re.search(r'{FENCE}\\w*\\n(.*?){FENCE}', text, re.S); code ="
                " found.group(1) if found else text"
                + _remedy_for_text_between_fences(run.function, texts),
                evidence=[
                    f"rows of {rows.source}",
                    f"one such text begins: {_first_text_with_fence(texts)[:SHOWN_CHARS]!r}",
                ],
                cases=[case_of_node(module, run.node)],
            )
            return


def _count_texts_with_failing_fences(function: str, texts: list[str]) -> int:
    """How many texts have fences that make a function fail; JSON may hold fences in its strings."""
    fenced = [text for text in texts if FENCE in text]
    if function == JSON_READER:
        fenced = [text for text in fenced if not _is_json(text)]
    return len(fenced)


def _is_json(text: str) -> bool:
    """Is a whole text JSON?"""
    try:
        parse_json(text, ROW)
    except ValueError:
        return False
    return True


def _first_text_with_fence(texts: list[str]) -> str:
    """The first text with a fence."""
    return next(text for text in texts if FENCE in text)


def _name_of_text_before_code(texts: list[str]) -> str:
    """What stands before the code in the first text with a fence, in words: the fence itself, or
    words before it.
    """
    starts = _first_text_with_fence(texts).lstrip().startswith(FENCE)
    return "the first fence" if starts else "the words before the fence"


def _describe_handling_of_unread_rows(module: Module, call: ast.AST) -> str:
    """What the script does with a row whose answer can't be read."""
    for around in module.parents(call):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            break
        is_guarded = isinstance(around, ast.Try) and any(
            call is node for part in around.body for node in ast.walk(part)
        )
        if isinstance(around, ast.Try) and is_guarded:
            last = [handler.body[-1] for handler in around.handlers]
            if any(isinstance(one, ast.Continue) for one in last):
                return "the exception handler skips the row (continue): the score leaves these rows out"
            return "the exception handler decides how these rows count"
    return "none of them can count as right"


def _remedy_for_text_between_fences(function: str, texts: list[str]) -> str:
    """The part of the remedy about text between fences that is no JSON either; empty where there is
    none.
    """
    if function != JSON_READER:
        return ""
    inside = [match.group(1) for text in texts if (match := BETWEEN_FENCES.search(text))]
    odd = [text for text in inside if not _is_json(text)]
    if not odd:
        return ""
    return (
        f"; {len(odd)} of them have no valid JSON between the fences either ({odd[0][:SHOWN_CHARS]!r}): count these as"
        " wrong, not as missing"
    )


def _measure_reading(reader: AnswerReader, rows: list[Row], column: str) -> ColumnReading | None:
    """How many texts of a column the reader reads; None where the column has too few texts."""
    texts = [row[column] for row in rows if row.get(column, "").strip()]
    if len(texts) < MIN_ROWS:
        return None
    return ColumnReading(column, sum(map(reader.finds_something_in, texts)), len(texts))


def _end_of_first_text(rows: list[Row], column: str) -> str:
    """The end of the first text of a column, where results stand."""
    # 60 characters: the mark and the result behind it, on one line of a report.
    return next((row[column] for row in rows if row.get(column)), "")[-60:]
