"""Offsets of a row do not mark the text that is beside them.

## What it does
Looks in the columns of a row for a position and the text that is there: `answer_start` beside `text` or `answer`,
`start` and `end` beside `text`, `value` or `word` in lists of spans or entities. It looks for that text at the position
in the other columns of the row (`context`, `text`, `tokens` apart). If no column has the text at its position, the
offset is wrong. It fires from 5 % of the rows with offsets and five. Rows with a number beyond their text count
something else, such as milliseconds of speech, and are left alone.

## Why it is bad
A program that cuts spans by these numbers trains on parts of words. The causes are texts that were stripped,
translated or normalised after the offsets were counted, offsets in bytes or tokens, and spans of other rows.

## Example
```yaml
data:
  - copies: 6
    of: {question: "Who wrote it?", context: "It was written by Ada in 1843.", answer: Ada, answer_start: 14}
```

## Use instead
```yaml
data:
  - copies: 6
    of: {question: "Who wrote it?", context: "It was written by Ada in 1843.", answer: Ada, answer_start: 18}
```

## Fix safety
It is safe to count the offsets again where the text is in the context once. Drop the other rows.

## References
- huggingface/datasets#2585 (leading spaces were stripped, and the offsets kept), alontalmor/MultiQA#24
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch

STARTS = (
    "answer_start",
    "start",
    "start_char",
    "begin",
    "start_offset",
    "start_index",
    "span_start",
    "char_start",
)
TEXTS = (
    "text",
    "answer",
    "value",
    "word",
    "entity",
    "span",
    "mention",
    "surface",
    "quote",
    "answer_text",
    "entity_text",
)
SPANS = (
    "answers",
    "answer",
    "entities",
    "spans",
    "labels",
    "annotations",
    "label",
    "ner",
    "mentions",
    "citations",
)
# Chosen, not measured: an annotator's slip is rarer.
MIN_SHARE, MIN_ROWS = 0.05, 5
MIN_CONTEXT = 10
"""Characters of a column that may hold the text"""
MAX_SPANS = 50


class MarkedText(NamedTuple):
    """A text, and where it is said to be."""

    start: int
    text: str


class OffsetsDoNotMarkTheirText(DataRule):
    code = "ROW098"
    fault = Fault.ANSWERS_PAIRED_WITH_WRONG_QUESTIONS
    symptoms = ("garbage-output", "odd-metrics")
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.wrong = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Compare the offsets of a batch with the texts of their rows."""
        for row in batch.rows:
            marks = _wrongly_marked_texts(row.raw or {})
            if marks is None:
                continue
            self.rows += 1
            if not marks:
                continue
            self.wrong += 1
            if len(self.cases) < MAX_CASES:
                text = f"{marks[0].text!r} is not at character {marks[0].start:,} of any column"
                self.cases.append(case_in_row(batch, row, text))

    def unmet(self) -> Unmet | None:
        """Unmet without offsets beside a text."""
        return (
            None if self.rows else Unmet("it is about offsets beside a text, and no row has them")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many rows have an offset that marks another text."""
        return make_count_measurement("rows whose offsets mark another text", self.wrong, self.rows)

    def findings(self) -> Iterator[Finding]:
        if self.wrong < max(MIN_ROWS, MIN_SHARE * self.rows):
            return
        yield self.finding(
            f"{self.wrong:,} of {self.rows:,} rows with offsets have one that does not mark the text beside it",
            "count the offsets again on the texts as they are now (context.find(text)), in characters, and strip or"
            " normalise texts before that",
            severity="error" if 2 * self.wrong > self.rows else "warning",
            cases=self.cases,
            count=self.wrong,
            total=self.rows,
        )


def _wrongly_marked_texts(raw: Mapping[str, Any]) -> list[MarkedText] | None:
    """The texts of a row that are not at their offsets; None where it has no offset that can be judged."""
    contexts = [text for text in raw.values() if isinstance(text, str) and len(text) >= MIN_CONTEXT]
    # A text that no column holds was normalised, and says nothing of its offset.
    marked = [one for one in _marked_texts(raw) if any(one.text in context for context in contexts)]
    # Words of speech have a start in milliseconds beside them: such numbers soon exceed the text.
    if any(one.start > max(map(len, contexts)) for one in marked):
        return None
    wrong = [one for one in marked if not _is_at_its_place(one, contexts)]
    return wrong if marked else None


def _marked_texts(raw: Mapping[str, Any]) -> Iterator[MarkedText]:
    """The texts of a row that have an offset beside them, in its columns or in a list of spans."""
    yield from _marked_text_of_object(raw)
    for name in SPANS:
        value = raw.get(name)
        spans = value if isinstance(value, list) else [value]
        for span in spans[:MAX_SPANS]:
            if isinstance(span, Mapping):
                yield from _marked_text_of_object(span)


def _marked_text_of_object(fields: Mapping[str, Any]) -> Iterator[MarkedText]:
    """The text and the offset of one object, which may be lists of both."""
    start = next((fields[name] for name in STARTS if name in fields), None)
    text = next((fields[name] for name in TEXTS if name in fields), None)
    starts, texts = (value if isinstance(value, list) else [value] for value in (start, text))
    for one, other in zip(starts, texts, strict=False):
        if (
            isinstance(one, int)
            and not isinstance(one, bool)
            and isinstance(other, str)
            and other.strip()
        ):
            yield MarkedText(one, other.strip())


def _is_at_its_place(marked: MarkedText, contexts: list[str]) -> bool:
    """Has one of the columns a text at its offset? Spaces that were stripped from the span are passed over."""
    return any(
        context[marked.start :].lstrip().startswith(marked.text)
        for context in contexts
        if marked.start >= 0
    )
