"""The base class of remedies: mechanical edits that end what one rule finds in a row.

A remedy is one module of `truetune.fixing.remedies` with one subclass of `Remedy`, which the catalogue finds by itself.
It names its rule and says whether it is safe: a safe one changes nothing but the fault. It proposes; what it proposes
is made only where the rule then finds less in the row, and no reader or template finds more
(`fixing.apply_proved_remedies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar

from truetune.checks.rule import Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.fixing.editable_row_of_file import RowBody
from truetune.fixing.judge_rows_before_and_after_edits import JudgedRows
from truetune.fixing.row_edits import Edit, ValuePath
from truetune.fixing.row_messages_with_paths import Turn, find_turns
from truetune.settings.run_spec import RunSpec


# The order matters: a key that stands twice must go before anything reads it, and rows go last, for
# an earlier edit may save them.
class Stage(IntEnum):
    """When a remedy has its turn: those that change what is in the text first, those that drop
    whole rows last.
    """

    TEXT = 1
    """Half surrogates, keys that stand twice"""
    SHAPE = 2
    """Names of keys and roles, kinds of values"""
    TEMPLATE = 3
    """What the chat template takes"""
    TOKENS = 4
    """Control tokens in contents"""
    ROW = 5
    """Rows that go"""
    COPIES = 6
    """Rows that stand elsewhere too"""


@dataclass(frozen=True)
class RemedyContext:
    """What remedies may know before the first row: settings, tokenizer and columns."""

    spec: RunSpec
    setup: Setup | None
    """None where no tokenizer is named"""
    eval_prints: frozenset[int] = frozenset()
    """Of the evaluation rows: contents without case, space and punctuation"""

    @cached_property
    def truetune_column_by_file_column(self) -> Mapping[str, str]:
        """What the file calls a column -> truetune's name."""
        return {column: ours for ours, column in self.spec.map.items() if column}


@dataclass
class RowView:
    """A row as remedies see it, with its turns and what a check found in it."""

    body: RowBody
    conversation: Conversation
    context: RemedyContext
    rejected: str | None = None
    """Why the template refuses the row; None where it does not"""
    supervised: int = 0
    """Supervised tokens of all its examples"""
    fingerprint: int = 0
    """Of its contents, as `duplicate-rows` compares them"""
    normal_fingerprint: int = 0
    """The same without case, space and punctuation"""
    notes: list[str] = field(default_factory=list)
    """Why a remedy that fits could not be made"""

    @property
    def value(self) -> dict[str, Any]:
        """The row's value as the file holds it."""
        return self.body.value

    @cached_property
    def turns(self) -> list[Turn]:
        """The messages of the row, each with its path."""
        # The reader's own mark on a column that made room for a mapped one.
        unused = tuple(name.removesuffix(" (not mapped)") for name in self.conversation.unused)
        return list(find_turns(self.value, self.context.truetune_column_by_file_column, unused))

    def json_text_at(self, path: ValuePath) -> str:
        """The JSON text of a value, as it is written. Raises EditError."""
        return self.body.json_text_at(path)


Attempt = list[Edit]


class Remedy:
    """Proposes edits that end what its rule finds in a row."""

    rule: ClassVar[str]
    """The name of the rule whose finding it ends"""
    what: ClassVar[str]
    """What it does, in a few words: `rename roles`"""
    safe: ClassVar[bool]
    """Does it change nothing but the fault? Others are made when asked for (`--unsafe`)."""
    stage: ClassVar[Stage]
    needs_tokenizer: ClassVar[bool] = True
    # Duplicates and leaks: in a group of one row the rule would find nothing before the edit
    # either.
    proved_by_rule: ClassVar[bool] = True
    """False: what it finds in a row is exact by itself, for the rule sees it only beside other rows"""

    def __init__(self, context: RemedyContext) -> None:
        self.context = context

    def attempts(self, row: RowView) -> Iterable[Attempt]:
        """Attempts (lists of edits) that may end the fault in this row; where there are several
        ways, the smaller change first.
        """
        raise NotImplementedError

    def count_faults(self, judged_rows: JudgedRows) -> int:
        """How many faults of the remedy's rule are in these rows."""
        return judged_rows.count_findings(self.rule)


class ProblemRemedy(Remedy):
    """A remedy of problems that the reader of rows names; no tokenizer is needed to see them."""

    kinds: ClassVar[tuple[str, ...]]
    """The kinds of `Problem` that it ends"""
    needs_tokenizer = False

    def count_faults(self, judged_rows: JudgedRows) -> int:
        """How many problems of its kinds these rows have."""
        return count_reader_problems(judged_rows.batch, self.kinds)


def count_reader_problems(batch: Batch, kinds: tuple[str, ...] | None = None) -> int:
    """How many problems the rows have, of these kinds (of all where None)."""
    return sum(
        kinds is None or problem.kind in kinds for row in batch.rows for problem in row.problems
    )


def combine_into_one_attempt(edits: Iterable[Edit]) -> Iterator[Attempt]:
    """One attempt with all these edits; none where there are no edits."""
    # Listed, for edits come as a generator, and an attempt without any would count as one that
    # helps nothing.
    attempt = list(edits)
    if attempt:
        yield attempt
