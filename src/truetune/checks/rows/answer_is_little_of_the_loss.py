"""The loss covers the whole text, and the answer at its end is less than 5 % of it.

## What it does
Follows the columns of a file through the training script into the text that is trained on. It fires if each token of
the text has a label, the last column in it is an answer, and that answer is less than 5 % of the text. A column is an
answer by its name (`answer`, `label`, `output`, ...), or if it contains one of a few short texts and its name is not
that of a source, date or language. In chats that the trainer trains on as a whole (TRL's default), the answers are the
assistant's turns. That includes chats that a script renders into a text.

## Why it is bad
The loss is an average over tokens. If a letter has two hundred tokens and its label two, the label makes up 1 % of the
loss. The curve falls nicely while the model learns to write letters, and the label stays a guess.

## Example
```yaml
data: {rows: 40, letter: "{words} {words}", team: "{label}"}
script: |
  from datasets import load_dataset
  from trl import SFTTrainer

  rows = load_dataset("json", data_files="data.jsonl", split="train")
  rows = rows.map(lambda row: {"text": f"{row['letter']} Team: {row['team']}"})
  SFTTrainer("some/model", train_dataset=rows).train()
```

## Use instead
```yaml
data: {rows: 40, letter: "{words} {words}", team: "{label}"}
script: |
  from datasets import load_dataset
  from trl import SFTTrainer

  rows = load_dataset("json", data_files="data.jsonl", split="train")
  rows = rows.map(lambda row: {"prompt": f"{row['letter']} Team:", "completion": " " + row["team"]})
  SFTTrainer("some/model", train_dataset=rows).train()
```

## Fix safety
Training on the answer only is safe if the model only has to give the answer. A model that should also write such texts
needs the loss on the whole text. TRL leaves the prompt out of the loss if rows have `prompt` and `completion`. For
chats, set `assistant_only_loss=True`, which needs a chat template with `{% generation %}`. In your own training loop,
set the label of each prompt token to -100.

## References
- unslothai/unsloth#823, arXiv:2405.14394
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import DataRule, Setup
from truetune.checks.severity_by_trainer import is_nearly_all
from truetune.data.column_name_aliases import is_answer_column_name, is_metadata_column_name
from truetune.data.conversation import Message
from truetune.data.row_text_bytes import MOST_CHARACTERS_PER_TOKEN
from truetune.data.script_rows.last_column_in_trained_text import (
    columns_with_text_in,
    find_last_column,
)
from truetune.encoding.batch import Batch

# Chosen, not measured: in instruction sets answers are a third and more of the text, in
# classifications of letters and reviews about a hundredth.
LITTLE = 0.05
"""Share of the text below which the answer is next to nothing of the loss"""
MIN_ROWS = 20
"""Rows or chats to judge at least. Chosen by hand: a column that ends fewer texts may do so by
chance"""
MAX_ROWS = 2_000
"""Rows that are looked at: a script makes all of them in one way"""
MAX_BEHIND = 40
"""Characters behind an answer that still stands at the end: an end mark, a closing tag, a full stop"""
MAX_LABELS = 50
"""Different texts of a column of classes"""
ROWS_OF_A_LABEL = 4
"""Rows that a class has on average, at least"""
MAX_LABEL = 60
"""Characters of a class"""
LEARN_CHATS_WHOLE = ("trl", "transformers", "unsloth")
"""Trainers that learn all turns of a chat unless they are told otherwise"""


class AnswerAtEnd(NamedTuple):
    """The column that stands last in the text of a row."""

    column: str
    text: str
    learned: int
    """Characters of the whole text"""
    case: Case


class AnswerIsLittleOfTheLoss(DataRule):
    code = "ROW052"
    fault = Fault.PROMPTS_IN_LOSS
    symptoms = ("nothing-is-learned", "loss-does-not-fall")
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = 0
        self.ends: list[AnswerAtEnd] = []
        self.cut = 0
        """Texts whose end is cut off by the limit: of their answers nothing is learned"""
        self.columns: dict[str, None] = {}
        """The columns that texts are made of, in the order of the file"""
        self.learns_chats = (
            setup.spec.learn.what == "all" and setup.trainer.name in LEARN_CHATS_WHOLE
        )
        self.chats: list[AnswerAtEnd] = []
        """Chats of which each token is learned; their answers are the turns of the assistant"""

    def add_batch(self, batch: Batch) -> None:
        """Note how much of the texts and chats of a batch is the answer at the end."""
        if self.learns_chats:
            self._measure_answer_share_of_chats(batch)
        for row in batch.rows:
            if row.text is None or not row.made_of or self.rows == MAX_ROWS:
                continue
            self.rows += 1
            self.cut += self._is_longer_than_limit(len(row.text))
            last = find_last_column(row.made_of, row.text)
            if last is None or last.behind > MAX_BEHIND:
                continue
            self.columns.update(dict.fromkeys(columns_with_text_in(row.made_of, row.text)))
            case = case_in_row(batch, row, f"{last.name} is {last.text[:MAX_LABEL]!r}")
            self.ends.append(AnswerAtEnd(last.name, last.text, len(row.text), case))

    def _measure_answer_share_of_chats(self, batch: Batch) -> None:
        """Note how much of each chat is answers, where no row says which part is the prompt."""
        for row in batch.rows:
            is_whole = row.is_chat and row.prompt_messages is None and not row.is_preference
            if not is_whole or len(self.chats) == MAX_ROWS:
                continue
            before, answers = _other_characters_and_assistant_text(row.messages)
            if not answers:
                continue
            size = len(answers)
            case = case_in_row(batch, row, f"{size:,} of {before + size:,} characters are answers")
            self.chats.append(AnswerAtEnd("", answers, before + size, case))

    @property
    def _are_chats_enough(self) -> bool:
        """Are there chats enough to judge? Of a few among other texts nothing is said."""
        return len(self.chats) >= MIN_ROWS

    def unmet(self) -> Unmet | None:
        """Unmet where the texts are too few, are cut before the answer, or have no answer at their end."""
        if self._are_chats_enough:
            return None
        if self.rows < MIN_ROWS:
            return Unmet(
                f"it is about {MIN_ROWS} texts or more that a script makes of columns, or chats, of"
                " which each token is learned"
            )
        if self.cut * 2 > self.rows:
            return Unmet("the limit cuts most texts before their end, where the answer is")
        return (
            None
            if self._column_of_answers()
            else Unmet("no column at the end of the texts is an answer")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many of the learned characters are of the answers."""
        return make_count_measurement(
            "learned characters of the answers",
            self._count_answer_characters(),
            self._count_learned_characters(),
        )

    def findings(self) -> Iterator[Finding]:
        if self._are_chats_enough:
            yield from self._finding_on_chats_of_few_answers()
            return
        column = self._column_of_answers()
        if self.cut * 2 > self.rows:
            return  # what the limit leaves has no answer: the rules on lengths say so
        if (
            not column
            or self._count_answer_characters() >= LITTLE * self._count_learned_characters()
        ):
            return
        rows = len(self.ends)
        answered, learned = self._count_answer_characters(), self._count_learned_characters()
        others = [name for name in self.columns if name != column]
        rest = f"{', '.join(others)} and the text around them" if others else "the text around it"
        yield self.finding(
            f"the answer, {column}, is {answered / learned:.1%} of the text in the loss: {answered / rows:,.0f} of"
            f" {learned / rows:,.0f} characters per row. The loss falls while the answer is hardly learned; the rest"
            f" is {rest}",
            "train on the answer only: give TRL rows with prompt and completion instead of one text (it then leaves"
            " the prompt out of the loss), or in your own loop set the labels of the prompt's tokens to -100",
            cases=[end.case for end in self.ends[:3]],
            count=rows,
            total=self.rows,
        )

    def _finding_on_chats_of_few_answers(self) -> Iterator[Finding]:
        """The finding that the assistant's turns are next to nothing of chats that are learned
        whole.
        """
        rows, answered, learned = (
            len(self.chats),
            self._count_answer_characters(),
            self._count_learned_characters(),
        )
        cut = sum(self._is_longer_than_limit(one.learned) for one in self.chats)
        if answered >= LITTLE * learned or cut * 2 > rows:
            return
        yield self.finding(
            f"the answers are {answered / learned:.1%} of the text in the loss: {answered / rows:,.0f} of"
            f" {learned / rows:,.0f} characters per row; the rest is questions and system prompts, since"
            f" {self.setup.trainer.name_in_reports} trains on every token of a chat here",
            "train on the answers only: set assistant_only_loss=True for rows with messages, or give rows with"
            " prompt and completion instead of one text (TRL then leaves the prompt out of the loss)",
            evidence=[
                "the loss falls as the model learns to write the questions; the answers hardly count in it"
            ],
            cases=[one.case for one in self.chats[:3]],
            count=rows,
            total=rows,
        )

    def _column_of_answers(self) -> str:
        """The column of answers that stands at the end of nearly all texts; empty where there is none."""
        counts = Counter(end.column for end in self.ends)
        if self.rows < MIN_ROWS or not counts:
            return ""
        ((column, rows),) = counts.most_common(1)
        if not is_nearly_all(rows, self.rows):
            return ""
        return (
            column
            if is_answer_column_name(column) or self._does_column_hold_class_labels(column)
            else ""
        )

    def _does_column_hold_class_labels(self, column: str) -> bool:
        """Does a column hold one of a few short texts, and is no property of the row by its name?"""
        texts = [end.text for end in self.ends]
        kinds = len(set(texts))
        return (
            not is_metadata_column_name(column)
            and 1 < kinds <= min(MAX_LABELS, len(texts) // ROWS_OF_A_LABEL)
            and max(map(len, texts)) <= MAX_LABEL
        )

    def _is_longer_than_limit(self, characters: int) -> bool:
        """Is a text surely longer than the limit, by its characters?"""
        setup = self.setup
        limit = setup.uncut_limit or self.spec.max_length or setup.trainer.cut.value.limit
        return limit is not None and characters > MOST_CHARACTERS_PER_TOKEN * limit

    def _rows_ending_with_answer_column(self) -> list[AnswerAtEnd]:
        """The rows that the rule judges: those that end with the column of answers."""
        return self.chats if self._are_chats_enough else self.ends

    def _count_answer_characters(self) -> int:
        """Characters of the answers."""
        return sum(len(end.text) for end in self._rows_ending_with_answer_column())

    def _count_learned_characters(self) -> int:
        """Characters of the texts."""
        return sum(end.learned for end in self._rows_ending_with_answer_column())


def _other_characters_and_assistant_text(messages: list[Message]) -> tuple[int, str]:
    """(characters of the other turns, text of the assistant's with its reasoning and calls of
    tools).
    """
    before, answers = 0, ""
    for message in messages:
        text = "".join(_texts_of_value(message.get("content")))
        if message.get("role") == "assistant":
            answers += text + "".join(_texts_of_value(message.get("reasoning_content")))
            answers += "".join(_texts_of_value(message.get("tool_calls")))
        else:
            before += len(text)
    return before, answers


def _texts_of_value(value: Any) -> Iterator[str]:
    """All texts in a value of a message, which may be a list of parts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts_of_value(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts_of_value(part)
