"""The data contains duplicate rows.

## What it does
Counts rows that are equal to an earlier one, equal except for case, white space and punctuation, or nearly the same
(MinHash over token 5-grams, from an estimated similarity of 0.8). Rows are nearly the same only if their answers are
too, and if they share more than what many rows share: a long instruction before each question makes no duplicates.

A column that a script beside the rows reads by its name (`row["context"]`) counts as part of the row. Duplicates of
pairs that also occur the other way round are votes, which `pairs-with-opposite-labels` is about. From 2 % of the rows
it is a warning, below an info. Nearly equal rows are an info if they are 10 % of all rows and most of their answers
differ by a word: they may come from one template.

## Why it is bad
A row that occurs ten times weighs ten times as much, and the model memorises it. A split that is made later puts copies
of it on both sides.

## Example
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Where is it?"}, {role: assistant, content: On the hill.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Where is it?"}, {role: assistant, content: On the hill.}]}
```

## Fix safety
Dropping duplicates is safe, unless the extra weight is intended.

## References
- bazingagin/npc_gzip#13, huggingface/datasets#4261
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.checks.faults import Fault
from truetune.checks.find_near_copies import GrowingArray, find_near_copy_rows
from truetune.checks.findings import Case, Finding
from truetune.checks.hash_columns_read_into_prompts import hash_read_columns_unused_by_format
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation, Origin
from truetune.encoding.batch import Batch
from truetune.settings.run_spec import Severity

COPIES = {
    "exact": "are equal to an earlier row",
    "normal": "are equal to an earlier row except for case, space and punctuation",
    "near": "are nearly the same as an earlier row",
}
MAX_SHOWN_GROUPS = 5
"""Groups of copies, and rows of each, that a report names"""
DROP_NEAR = (
    "look at some of them, and drop those that say the same; keep rows of one template with different names, dates"
    " or amounts"
)
# Chosen, not measured: copies that somebody has reworded are a few of the rows, a template makes many.
TEMPLATE_SHARE = 0.1
"""Share of the rows from which near ones with other answers are of one template"""
# Measured on LLaMA-Factory's demo data and tinker-cookbook's chats (eleven sets, 4,268 rows): sets
# of instructions have up to 1.7 %, one of pairs 3.7 %, two of tool calls 13 and 14 %. At 0.01 two
# sets of instructions would warn as well; at 0.04 the pairs would not.
UNREAD = ("unknown-role", "no-content", "not-messages", "not-a-string")
"""Problems with which a message's text may have been left unread"""
WARNING_SHARE = 0.02
"""Share of the rows from which copies are a warning and not a note."""


class DuplicateRows(DataRule):
    code = "ROW007"
    fault = Fault.ROWS_TRAINED_MORE_THAN_ONCE
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False
    # Copies of a pair that others judged the other way round are votes: dropped, no majority can be counted.
    moot_where = ("pairs-with-opposite-labels",)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        # Phrases of a few bytes are shared by all texts: nearness is measured on tokens alone.
        kinds = (
            ("exact", "normal") if setup.are_tokens_single_bytes else ("exact", "normal", "near")
        )
        self.prints = {kind: GrowingArray() for kind in kinds}
        self.files: list[str] = []
        self.has_pairs = False
        self.lines = GrowingArray()
        self.answers, self.answer_phrases = GrowingArray(), GrowingArray()

    def add_batch(self, batch: Batch) -> None:
        """Keep the fingerprints and the places of a batch's rows."""
        prints = batch.fingerprints
        beside = hash_read_columns_unused_by_format(
            batch.rows, self.setup.columns_read
        ) ^ _unique_numbers_for_unread_rows(batch)
        self.prints["exact"].add(prints.exact ^ beside)
        self.prints["normal"].add(prints.normal ^ beside)
        if beside.any():
            # Rows whose other columns differ are no copies, however near their prompts are.
            self.prints.pop("near", None)
        if "near" in self.prints:
            self.prints["near"].add(prints.phrases)
        self.answers.add(prints.answer)
        self.answer_phrases.add(prints.answer_phrases)
        for row in batch.rows:
            self.has_pairs = self.has_pairs or row.is_preference
            if not self.files or row.origin.file != self.files[-1]:
                self.files.append(row.origin.file)
        # Files are numbered, so that a place is three numbers: Origins of all rows would take ten
        # times the memory.
        places = [
            (self._file_number(row.origin.file), row.origin.line, row.origin.row)
            for row in batch.rows
        ]
        self.lines.add(np.array(places, dtype=np.int64).reshape(-1, 3))

    def _file_number(self, file: str) -> int:
        """The number of a file; mostly it is the last one."""
        return len(self.files) - 1 if file == self.files[-1] else self.files.index(file)

    def measurement_if_clean(self) -> Measurement:
        """That no row is equal or nearly equal to an earlier one."""
        what = "equal or nearly equal" if "near" in self.prints else "equal"
        return make_count_measurement(
            f"rows that are {what} to an earlier one", 0, len(self.places)
        )

    def findings(self) -> Iterator[Finding]:
        lines = self.places
        for kind, pairs in self.copies.items():
            if pairs:
                likeness = "near-duplicate of" if kind == "near" else "duplicate of"
                yield self.finding(
                    f"{len(pairs):,} of {len(lines):,} rows {COPIES[kind]}",
                    self._remedy_for_copies(kind),
                    severity=self._severity_of_copies(kind, pairs),
                    cases=[
                        Case(
                            f"{likeness} {self._place_of(lines, early)}",
                            self._place_of(lines, late),
                        )
                        for early, late in pairs[:MAX_CASES]
                    ],
                    count=len(pairs),
                    total=len(lines),
                )

    def _remedy_for_copies(self, kind: str) -> str:
        """What to do about copies; those of pairs may be votes, which are counted before they are dropped."""
        if kind == "near":
            return DROP_NEAR
        votes = ", or they are the votes of several labellers" if self.has_pairs else ""
        return f"drop the duplicates, unless oversampling is intended{votes}"

    def _severity_of_copies(self, kind: str, pairs: Sequence[tuple[int, int]]) -> Severity:
        """A warning where a share of the rows are copies; near ones only where the answers of most are equal."""
        # Rows that say the same of other names, dates or sums share a template, and each teaches its own answer.
        answers = self.answers.whole()
        is_template = False
        if kind == "near":
            equal = sum(answers[early] == answers[late] for early, late in pairs)
            is_many = len(pairs) > TEMPLATE_SHARE * len(self.places)
            is_template = is_many and 2 * equal < len(pairs)
        is_enough = len(pairs) > WARNING_SHARE * len(self.places)
        return "warning" if is_enough and not is_template else "info"

    def report_data(self) -> dict[str, Any]:
        # A copy of a copy belongs to the group of the first: pairs come in the order of the earlier
        # row.
        """The groups of copies, as plain values for the report's `data`."""
        first: dict[int, int] = {}
        groups: dict[int, list[int]] = {}
        for early, late in sorted(pair for pairs in self.copies.values() for pair in pairs):
            first[late] = first.get(early, early)
            groups.setdefault(first[late], []).append(late)
        by_size = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
        kinds = {late: kind for kind, pairs in self.copies.items() for _, late in pairs}
        largest = by_size[:MAX_SHOWN_GROUPS]
        return {
            "copies": {
                "rows": {kind: len(pairs) for kind, pairs in self.copies.items()},
                "groups": len(groups),
                "largest": [
                    self._describe_row_with_its_copies(row, late, kinds) for row, late in largest
                ],
            }
        }

    def _describe_row_with_its_copies(
        self, row: int, copies: list[int], kinds: dict[int, str]
    ) -> dict[str, Any]:
        """A row with its copies: how many they are, the loosest kind among them, and the first places."""
        first_rows = [row, *copies[: MAX_SHOWN_GROUPS - 1]]
        return {
            "rows": len(copies) + 1,
            "kind": max((kinds[i] for i in copies), key=list(COPIES).index),
            "places": [self._place_of(self.places, i)._asdict() for i in first_rows],
        }

    @cached_property
    def places(self) -> NDArray[Any]:
        """(rows, 3): file, line and number, which lines without a row have too"""
        return self.lines.whole()

    @cached_property
    def copies(self) -> dict[str, list[tuple[int, int]]]:
        """(earlier row, copy) by kind; a row is a copy of the first kind that it fits."""
        taken: set[int] = set()
        copies = {}
        for kind, grown in self.prints.items():
            copies[kind] = [
                (early, late)
                for early, late in self._find_copies(kind, grown.whole())
                if late not in taken
            ]
            taken |= {late for _, late in copies[kind]}
        return copies

    def _find_copies(self, kind: str, values: NDArray[Any]) -> list[tuple[int, int]]:
        """(earlier row, copy) of one kind, by the fingerprints of all rows."""
        if not len(values):
            return []
        if kind != "near":
            return _pairs_with_equal_earlier(values)
        return find_near_copy_rows(values, self.answers.whole(), self.answer_phrases.whole())

    def _place_of(self, lines: NDArray[Any], row: int) -> Origin:
        """Where a row stands."""
        file, line, number = lines[row].tolist()
        return Origin(self.files[file], line, number)


def _unique_numbers_for_unread_rows(batch: Batch) -> NDArray[Any]:
    """(rows,) a number of its own for each row that was not understood, else 0: the unknown is equal to nothing."""
    marks = [
        f"{row.origin.file}:{row.origin.line}:{row.origin.row}"
        if _has_messages_but_none_readable(row)
        else ""
        for row in batch.rows
    ]
    digests = [
        blake2b(mark.encode("utf-8", "replace"), digest_size=8).digest() if mark else bytes(8)
        for mark in marks
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _has_messages_but_none_readable(row: Conversation) -> bool:
    """Has a row messages, and no text or call in any of them that was read under a known role or key?"""
    if not row.is_chat or not any(problem.kind in UNREAD for problem in row.problems):
        return False
    return not any(message.get("content") or message.get("tool_calls") for message in row.messages)


def _pairs_with_equal_earlier(values: NDArray[Any]) -> list[tuple[int, int]]:
    """(earlier row, row) for each row that is equal to an earlier one; the first such is taken."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    earlier = first[inverse]
    late = np.flatnonzero(earlier != np.arange(len(values)))
    return list(zip(earlier[late].tolist(), late.tolist(), strict=True))
