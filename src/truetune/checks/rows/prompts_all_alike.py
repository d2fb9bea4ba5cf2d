"""All prompts are the same text, but their answers differ.

## What it does
Compares what comes before the answer of each row. It fires if nearly all rows (95 %) have the same prompt, or all rows
have one of a few prompts, while their answers differ, and if something shows that the prompts were meant to differ: a
column of varying texts that is in no prompt and no answer, or an unfilled placeholder (`{text}`). If a script makes the
rows, the rows that it makes are compared. It is an error if the script reads that column, if a placeholder is unfilled,
or if the answers are labels. Otherwise it is an info, since the column may be just a comment. Rows with images, sound
or video are ignored.

## Why it is bad
Nothing in a prompt tells which answer is wanted. The model can only learn how frequent the answers are: the loss stops
at their entropy, in training and in evaluation, and the model gives the commonest answer to everything.

## Example
```yaml
data: {rows: 60, instruction: "Answer this message: {{text}}", output: "{words}"}
```

## Use instead
```yaml
data: {rows: 60, instruction: "Answer this message: {words_before}", output: "{words}"}
```

## Fix safety
There is no automatic fix: write the column into the prompt, both in training and where you call the model.

## References
- Python documentation, `str.format`: a placeholder stays as it is in a text that is not formatted
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.columns_read_by_scripts import PLACEHOLDER
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.is_wrong_column_learned import (
    NOT_MAPPED,
    last_answer,
    texts_before_last_answer,
)
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recognise_prose_and_media_columns import MEDIA_KEYS, UNSPACED_SCRIPT
from truetune.checks.rule import DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.data.count_media import count_media
from truetune.data.media_of_row import MEDIA_COLUMNS
from truetune.encoding.batch import Batch
from truetune.settings.run_spec import Severity

MIN_ROWS = 20
"""Rows from which it says something, as of `few-distinct-answers`"""
# Chosen, not measured: a few broken rows or a second task of some rows leave the others alike.
ALIKE_SHARE = 0.95
"""Share of the rows that have the commonest prompt"""
# Chosen, not measured: short texts stand in others by chance.
MAX_REACHED = 0.05
"""Share of the rows in which a text of the column may stand in prompt or answer by chance"""
MIN_DISTINCT = 0.5
"""Share of the rows in which a column has a text of its own; one of some values sorts rows"""
MIN_WORDS = 3
"""Words of a text that may be what a prompt is about; ids, dates, names and paths have fewer"""
ONE_ANSWER = 0.95
"""Share of one answer from which the answers do not differ"""
MAX_LABEL = 40
"""Characters up to which an answer may be a label, as of `few-distinct-answers`"""
ROWS_A_LABEL = 5
"""Rows that a label has on average, at least"""
MAX_KEPT = 100_000
"""Different texts that are told apart: beyond, rows differ anyway"""
SHOWN_CHARACTERS = 80
"""Characters of the prompt that a case shows"""


class _Column(NamedTuple):
    """A column that reaches no prompt, though its texts differ."""

    name: str
    is_read: bool
    """A script reads it"""


class _ColumnTexts:
    """What a column holds, counted over the rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.reached = 0
        """Rows whose text of this column stands in prompt or answer"""
        self.wordy = 0
        """Rows whose text has some words"""
        self.read = 0
        """Rows of which a script reads it"""
        self.texts: set[int] = set()

    def add(self, text: str, whole: str, *, is_read: bool) -> None:
        """Count the text of one more row; `whole` is its prompt and answer together."""
        self.rows += 1
        self.reached += " ".join(text.split()) in whole
        self.wordy += _has_words(text)
        self.read += is_read
        if len(self.texts) < MAX_KEPT:
            self.texts.add(hash(text))

    def are_texts_varied_and_in_no_prompt(self, rows: int) -> bool:
        """Do its texts differ from row to row, and stand nowhere?"""
        half = rows / 2
        return (
            min(self.rows, self.wordy) > half
            and len(self.texts) >= MIN_DISTINCT * self.rows
            and self.reached <= MAX_REACHED * self.rows
        )


def _has_words(text: str) -> bool:
    """Has a text some words?"""
    is_unspaced = len(UNSPACED_SCRIPT.findall(text[:100])) > MIN_WORDS
    return is_unspaced or len(text.split(maxsplit=MIN_WORDS)) >= MIN_WORDS


class PromptsAllAlike(DataRule):
    code = "ROW054"
    fault = Fault.PROMPTS_UNDERDETERMINE_ANSWERS
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "garbage-output")
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = 0
        self.prompts: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.longest_answer = 0
        self.columns: defaultdict[str, _ColumnTexts] = defaultdict(_ColumnTexts)
        self.first: dict[str, Case] = {}
        """The first row of each of the first prompts"""
        self.has_media = False

    def add_batch(self, batch: Batch) -> None:
        """Count the prompts, answers and columns of a batch's rows, while the prompts may still be alike."""
        if self.has_media:
            return
        for row in batch.rows:
            pair = _prompt_and_answer(row)
            if pair is None:
                continue
            self.rows += 1
            if self._may_nearly_all_prompts_be_alike():
                self._count_row(batch, row, *pair)
        self.has_media = bool(count_media(batch.rows)) or any(map(_is_media_column, self.columns))

    def _may_nearly_all_prompts_be_alike(self) -> bool:
        """May nearly all rows still have one prompt? Most data sets are out after some rows, and nothing is kept."""
        return self.rows <= MIN_ROWS or len(self.prompts) <= (1 - ALIKE_SHARE) * self.rows + 1

    def _count_row(self, batch: Batch, row: Conversation, prompt: str, answer: str) -> None:
        """Count one row."""
        self.prompts[prompt] += 1
        if len(self.answers) < MAX_KEPT:
            self.answers[answer[:SHOWN_CHARACTERS]] += 1
        self.longest_answer = max(self.longest_answer, len(answer))
        if prompt not in self.first and len(self.first) < MIN_ROWS:
            shown = f"the prompt is {prompt[:SHOWN_CHARACTERS]!r}"
            self.first[prompt] = case_in_row(batch, row, shown)
        whole = " ".join(f"{prompt} {answer}".split())
        for name, text in self._texts_outside_prompt(row):
            self.columns[name].add(text, whole, is_read=name in row.made_of)

    def _texts_outside_prompt(self, row: Conversation) -> Iterator[tuple[str, str]]:
        """(column, text) of those that certainly stand in no prompt, or whose place in the row is known."""
        for name, text in _columns_and_texts_of_row(row):
            # Of rows that are not followed through the script that reads them, nobody knows where it puts a column.
            if row.made_of or name not in self.setup.columns_read:
                yield name, text

    def unmet(self) -> Unmet | None:
        """Unmet where rows have media, or too few have a prompt and an answer."""
        if self.has_media:
            return Unmet("rows with images, sound or video may all have one prompt")
        if self.rows >= MIN_ROWS:
            return None
        return Unmet(
            f"{self.rows:,} rows with a prompt and an answer are too few to compare",
            f"give at least {MIN_ROWS}",
        )

    def measurement_if_clean(self) -> Measurement:
        """How many rows have the commonest prompt."""
        _, rows = self._commonest_prompt_and_row_count()
        return make_count_measurement("rows with the commonest prompt", rows, self.rows)

    def _commonest_prompt_and_row_count(self) -> tuple[str, int]:
        """(the commonest prompt, the number of its rows)."""
        if not self.prompts:
            return "", 0
        [(prompt, rows)] = self.prompts.most_common(1)
        # Where prompts were no longer counted, they differ.
        return prompt, rows

    def findings(self) -> Iterator[Finding]:
        prompt, rows = self._commonest_prompt_and_row_count()
        are_few = self._are_prompts_few()
        if (
            not (are_few or self._is_prompt_of_nearly_all(rows))
            or self.has_media
            or not self._do_answers_differ()
        ):
            return
        column = self._text_column_missing_from_prompts()
        placeholder = next((found.group() for found in PLACEHOLDER.finditer(prompt)), "")
        if column is None and not placeholder:
            return  # answers to one and the same request may be what is wanted
        alike = f"{rows:,} of {self.rows:,} prompts are the same text"
        if are_few:
            rows = self.rows
            alike = f"the prompts of {rows:,} rows are {len(self.prompts)} different texts"
        reason = _evidence_of_missing_text(column, placeholder)
        yield self.finding(
            f"{alike}, and their answers differ ({len(self.answers):,} different ones): {reason}, so the model can"
            " only learn how frequent each answer is",
            self._remedy_for_column(column, placeholder),
            severity=self._severity_for_column(column, is_unfilled=bool(placeholder)),
            cases=[self.first[prompt]] if prompt in self.first else [],
            count=rows,
            total=self.rows,
        )

    def _is_prompt_of_nearly_all(self, rows: int) -> bool:
        """Is the commonest prompt, with these rows, that of nearly all?"""
        return rows >= MIN_ROWS and rows >= ALIKE_SHARE * self.rows

    def _are_prompts_few(self) -> bool:
        """Are the prompts a few texts, and most answers texts of their own?"""
        _, rows = self._commonest_prompt_and_row_count()
        return (
            rows < ALIKE_SHARE * self.rows <= self.prompts.total()
            and len(self.prompts) <= (1 - ALIKE_SHARE) * self.rows
            and len(self.answers) >= MIN_DISTINCT * self.rows
        )

    def _do_answers_differ(self) -> bool:
        """Is no single answer that of nearly all rows?"""
        return max(self.answers.values()) < ONE_ANSWER * self.answers.total()

    def _text_column_missing_from_prompts(self) -> _Column | None:
        """The column of texts that stands in no prompt; of several one that the script reads, then the most varied."""
        missed = [
            (texts.read * 2 > texts.rows, len(texts.texts), name)
            for name, texts in self.columns.items()
            if texts.are_texts_varied_and_in_no_prompt(self.rows)
        ]
        if not missed:
            return None
        is_read, _, name = max(missed)
        return _Column(name, is_read)

    def _severity_for_column(self, column: _Column | None, *, is_unfilled: bool) -> Severity:
        """An error where the prompts were meant to differ (a placeholder is unfilled, answers are labels, or
        the script reads the column); else a note.
        """
        are_labels = self.longest_answer <= MAX_LABEL and (
            len(self.answers) * ROWS_A_LABEL <= self.rows
        )
        is_meant = is_unfilled or are_labels or (column is not None and column.is_read)
        return "error" if is_meant else "info"

    def _remedy_for_column(self, column: _Column | None, placeholder: str) -> str:
        """What to do: write the missed column, or fill the placeholder, into the prompts."""
        if placeholder:
            return (
                "fill in the placeholder where the prompt is built (PROMPT.format(...), or an f-string), and build"
                " the rows again; use the same prompt when you call the model"
            )
        name = "the column" if column is None else f"the column {column.name!r}"
        return f"write {name} into the prompt; if all rows are meant to have one prompt, change nothing"


def _evidence_of_missing_text(column: _Column | None, placeholder: str) -> str:
    """What shows that the prompts were meant to differ."""
    parts = []
    if placeholder:
        parts.append(f"the placeholder {placeholder} is never filled in")
    if column is not None:
        reads = ", though the script reads it" if column.is_read else ""
        parts.append(f"no prompt contains the column {column.name!r}{reads}")
    return ", and ".join(parts)


def _prompt_and_answer(row: Conversation) -> tuple[str, str] | None:
    """(the text before the answer, the answer) of a row; None if it lacks one of them."""
    if row.format == "text":
        return _text_before_column_and_column_text(row)
    answer = last_answer(row)
    prompt = texts_before_last_answer(row)
    if answer is None or not answer.strip() or not prompt.strip():
        return None
    return prompt, answer.strip()


def _text_before_column_and_column_text(row: Conversation) -> tuple[str, str] | None:
    """(text before, text of the column) of a text that a script makes, if one column of the row
    stands in it.

    With several columns, one of them may be the question: then None.
    """
    text = row.text or ""
    held = [
        value.strip() for value in row.made_of.values() if value.strip() and value.strip() in text
    ]
    if len(held) != 1 or len(held[0]) >= len(text.strip()):
        return None
    prompt, _, _ = text.partition(held[0])
    return (prompt, held[0]) if prompt.strip() else None


def _columns_and_texts_of_row(row: Conversation) -> Iterator[tuple[str, str]]:
    """(column, text) of what the row was made of, and of what was left over."""
    raw = row.raw or {}
    # Beside a text of one column, others may be left out on purpose; what the script reads is not.
    unused = () if row.format == "text" else row.unused
    left_over = {name.removesuffix(NOT_MAPPED) for name in unused}
    for name, value in {**{one: raw.get(one) for one in left_over}, **row.made_of}.items():
        if isinstance(value, str) and value.strip():
            yield name, value


def _is_media_column(column: str) -> bool:
    """Is a column one of pictures, sound or video, by its name?"""
    return column in MEDIA_COLUMNS or column.lower().startswith(tuple(MEDIA_KEYS))
