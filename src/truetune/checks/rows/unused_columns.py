"""Columns with content are in neither the prompt nor the answer.

## What it does
Lists the columns that the row format does not use: a warning if their names sound like part of the prompt or the
answer, an info if they contain sentences. If one is named like an answer and another one is trained on as the answer,
it names both. It is an error if the words of the answers are in such a column and in no prompt, and the column belongs
in the prompt by its name or the settings: the model can then only make them up.

If settings name the columns (LLaMA-Factory's `columns` in dataset_info.json, `format` of a `type` in Axolotl), any
other column is unused, whatever its name. It ignores short values (ids, sources, scores, dates), and columns of images,
sound and video, which trainers read beside the text. A column that a script next to the rows reads by its name
(`row["context"]`) is used.

## Why it is bad
A `system`, `context` or `input` column that is not mapped is silently lost, and the model learns to answer without what
the answer is based on.

## Example
```yaml
data:
  - {context: The shop opens at nine., messages: [{role: user, content: "When?"}, {role: assistant, content: At nine.}]}
```

## Use instead
```yaml
data:
  - messages:
      - {role: user, content: "The shop opens at nine. When?"}
      - {role: assistant, content: At nine.}
```

## Fix safety
Ids and sources may stay: trainers ignore them. Whether a column belongs in the prompt is your decision. If you add it,
serve the model with the same prompt.

## References
- hiyouga/LLaMA-Factory#7592, huggingface/open-r1#585
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

from truetune.checks.faults import Fault
from truetune.checks.find_unread_columns_behind_answers import AnswerWords, AnswerWordsInColumns
from truetune.checks.findings import Case, Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recognise_prose_and_media_columns import MEDIA_KEYS, PROMPT_COLUMNS, is_prose
from truetune.checks.rule import DataRule, Setup
from truetune.data.column_name_aliases import is_answer_column_name
from truetune.data.conversation import Conversation, Origin
from truetune.data.media_of_row import MEDIA_COLUMNS, find_media_of_row
from truetune.data.script_rows.read_rows_given_to_trainer import read_trained_text_rows
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of
from truetune.errors import MAX_NAMED, TruetuneError, format_name_list, shorten_name
from truetune.settings.row_formats import NO_COLUMN, is_script_named_as_format


class UnusedColumns(DataRule):
    code = "ROW004"
    fault = Fault.COLUMNS_MISSING_FROM_TRAINING_TEXT
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False
    judges_columns = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = 0
        self.columns: Counter[str] = Counter()
        self.first: dict[str, Origin] = {}
        self.prose: Counter[str] = Counter()
        """Rows in which a column holds a sentence"""
        self.words = AnswerWordsInColumns()
        self.learned: Counter[str] = Counter()
        """Rows in which a column is the answer, while one that is called an answer is used for nothing"""

    def add_batch(self, batch: Batch) -> None:
        """Count the columns of a batch's rows that reach neither prompt nor answer."""
        self.rows += len(batch.rows)
        for row in batch.rows:
            for column in row.unused:
                if self._is_read_elsewhere(row, _column_name_without_unmapped_note(column)):
                    continue
                self.columns[column] += 1
                self.first.setdefault(column, row.origin)
                self.words.add(row, column)
                value = (row.raw or {}).get(_column_name_without_unmapped_note(column))
                self.prose[column] += isinstance(value, str) and is_prose(value)
            if any(
                is_answer_column_name(_column_name_without_unmapped_note(column))
                for column in row.unused
            ):
                learned = _answer_column_not_named_so(row)
                self.learned[learned] += bool(learned)

    def _is_read_elsewhere(self, row: Conversation, column: str) -> bool:
        """Does a script beside the rows read a column, into its prompts perhaps, or does it hold pictures or sound?"""
        if column in self.setup.columns_read:
            return True
        return column in MEDIA_COLUMNS and bool(find_media_of_row(row).held(MEDIA_COLUMNS[column]))

    def measurement_if_clean(self) -> Measurement:
        """That no column with text reaches neither prompt nor answer; and the columns with short values that do."""
        left = (
            f"; with short values only: {format_name_list(map(shorten_name, self.columns))}"
            if self.columns
            else ""
        )
        return make_count_measurement(
            "rows whose text in some column reaches neither prompt nor answer", 0, self.rows, left
        )

    def findings(self) -> Iterator[Finding]:
        told = self._columns_answers_are_made_from()
        for name, words in told.items():
            yield self._finding_on_source_column_of_answers(name, words)
        for severity, wanted in (("warning", True), ("info", False)):
            columns = self._other_columns_worth_naming(told, is_prompt=wanted)
            if columns:
                first = [
                    Case(f"first seen: {shorten_name(name)}", self.first[name])
                    for name in islice(columns, MAX_NAMED)
                ]
                names = format_name_list(
                    f"{shorten_name(name)} ({count:,} rows)" for name, count in columns.items()
                )
                instead = self._column_learned_instead(columns) if wanted else ""
                yield self.finding(
                    f"unused columns, in neither prompt nor answer: {names}"
                    + (f"; {instead} is trained on as the answer" if instead else ""),
                    self._remedy_for_columns(columns, instead)
                    if wanted
                    else "if these are comments or metadata, change nothing; otherwise map them (--map OURS=THEIRS)",
                    severity="warning" if severity == "warning" else "info",
                    cases=first,
                    count=max(columns.values()),
                    total=self.rows,
                )

    def _columns_answers_are_made_from(self) -> dict[str, AnswerWords]:
        """The columns of most rows that the answers are made from."""
        common = (name for name, rows in self.columns.items() if rows * 2 > self.rows)
        found = {name: self.words.words_explained_by(name) for name in common}
        return {name: words for name, words in found.items() if words is not None}

    def _other_columns_worth_naming(
        self, told: Mapping[str, object], *, is_prompt: bool
    ) -> dict[str, int]:
        """The other columns whose name sounds like part of the prompt or the answer, or those that hold sentences."""
        return {
            name: count
            for name, count in self.columns.items()
            if name not in told
            and (_column_name_without_unmapped_note(name).lower() in PROMPT_COLUMNS) is is_prompt
            and (is_prompt or self._does_column_hold_sentences(name))
        }

    def _finding_on_source_column_of_answers(self, column: str, words: AnswerWords) -> Finding:
        """The finding on a column that the answers were made from, and that no prompt holds."""
        name = _column_name_without_unmapped_note(column)
        quoted = repr(shorten_name(name))
        is_unread = self.spec.map.get(name) == NO_COLUMN
        reason = f"the settings map no column to {name}" if is_unread else "no prompt contains it"
        return self.finding(
            f"the column {quoted} reaches no prompt ({reason}), but the answers are based on it, so the model can"
            f" only make them up: {words.own:.0%} of the words that an answer has and its prompt lacks are in"
            f" {quoted} of the same row ({words.other:.0%} in that of another row)",
            _remedy_for_unread_column(name)
            if is_unread
            else f"write {quoted} into the prompt, in training and at inference: "
            + self._remedy_for_columns({column: 1}, ""),
            severity="error" if words.is_prompt or is_unread else "warning",
            evidence=[f"such words of one row: {shorten_name(words.example)}"],
            cases=[Case(f"first seen: {shorten_name(name)}", self.first[column])],
            count=self.columns[column],
            total=self.rows,
        )

    def _column_learned_instead(self, columns: dict[str, int]) -> str:
        """The column that is learned as the answer while one of these has the name of an answer; empty: none is."""
        answers = [
            name
            for name in columns
            if is_answer_column_name(_column_name_without_unmapped_note(name))
        ]
        if not answers or not self.learned:
            return ""
        name, rows = self.learned.most_common(1)[0]
        return shorten_name(name) if rows * 2 > self.rows else ""

    def _remedy_for_columns(self, columns: dict[str, int], instead: str) -> str:
        """What to do with columns that sound like a part of prompt or answer."""
        script = self.spec.format
        if script is not None and is_script_named_as_format(script):
            if set(_columns_lost_by_script(script)).intersection(columns):
                return (
                    f"check where {script} rewrites the messages or texts: it reads these columns, but nothing of"
                    " them is in the rows that it trains on"
                )
            return f"let {script} read them: it builds the rows, and never reads these columns"
        if not instead:
            return "map them (--map OURS=THEIRS) or write them into the messages"
        answer = next(
            _column_name_without_unmapped_note(name)
            for name in columns
            if is_answer_column_name(_column_name_without_unmapped_note(name))
        )
        return (
            f"if {shorten_name(answer)} contains the answers, map that column as the answer instead of {instead}"
            f' (--map output={shorten_name(answer)}; in LLaMA-Factory\'s dataset_info.json "response":'
            f' "{shorten_name(answer)}")'
        )

    def _does_column_hold_sentences(self, column: str) -> bool:
        """Does a column hold sentences in most of its rows, and no names of picture files?"""
        media = _column_name_without_unmapped_note(column).lower().startswith(tuple(MEDIA_KEYS))
        return not media and self.prose[column] * 2 > self.columns[column]


def _remedy_for_unread_column(name: str) -> str:
    """How settings read a column that they leave out."""
    theirs = {"input": "query"}.get(name, name)
    return (
        f'name it: "{theirs}": "{name}" under "columns" of the data set in LLaMA-Factory\'s dataset_info.json,'
        f" {{{name}}} in the `format` of Axolotl's type, or write it into the column of the prompt; delete cached"
        " tokenized rows (tokenized_path, dataset_prepared_path), and train again"
    )


def _answer_column_not_named_so(row: Conversation) -> str:
    """The column of the file whose text is the row's last answer; empty where none is, or its name says answer."""
    answer = row.completion
    if row.is_chat:
        last = row.messages[-1] if row.messages else {}
        answer = text_of(last.get("content")) if last.get("role") == "assistant" else None
    if not answer or not answer.strip():
        return ""
    for column, value in (row.raw or {}).items():
        if isinstance(value, str) and value.strip() == answer.strip():
            return "" if is_answer_column_name(column) else column
    return ""


def _column_name_without_unmapped_note(column: str) -> str:
    """The name without the note that it is not mapped."""
    return column.removesuffix(" (not mapped)")


def _columns_lost_by_script(script: str) -> tuple[str, ...]:
    """The columns that a script reads, and of which nothing reaches its trainer."""
    try:
        return read_trained_text_rows(script).columns_read_but_not_trained()
    except TruetuneError:
        return ()
