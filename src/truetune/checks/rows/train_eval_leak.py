"""Rows of the evaluation set are in the training set.

## What it does
Compares each evaluation row with the training rows: equal, equal except for case, white space and punctuation, the same
prompt, or nearly the same (MinHash over token 5-grams). If an evaluation row is the beginning of a training row, or
continues one, turns of one conversation are in both sets: the conversation became several rows, and these were split.
These are errors.

It is a warning if evaluation rows have a prompt of the training set with another answer, or if half of them or more
have a long answer that training rows also have word for word: the rows were rephrased, and split afterwards. It names a
column whose value such rows share (`faq_id`).

## Why it is bad
The evaluation loss then follows the training loss, and says nothing about rows that the model has not seen.

## Example
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Where is it?"}, {role: assistant, content: On the hill.}]}
eval_data:
  - {messages: [{role: user, content: "Is it OPEN?"}, {role: assistant, content: "it is open"}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Where is it?"}, {role: assistant, content: On the hill.}]}
eval_data:
  - {messages: [{role: user, content: "May I bring a dog?"}, {role: assistant, content: You may.}]}
```

## Fix safety
Remove the leaked rows from the evaluation set, or from the training set. Split before any augmentation, and split by
conversation before turns become rows. The evaluation loss rises to its true value.

## References
- OpenRLHF/OpenRLHF#1089, huggingface/datasets#4261, embeddings-benchmark/mteb#1036
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.checks.conversations_in_training_and_evaluation import SharedConversations
from truetune.checks.faults import Fault
from truetune.checks.find_near_copies import find_near_rows_in
from truetune.checks.findings import Case, Finding
from truetune.checks.hash_columns_read_into_prompts import hash_read_columns_unused_by_format
from truetune.checks.is_wrong_column_learned import last_answer
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation, Origin
from truetune.encoding.batch import Batch
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import stream_batches
from truetune.encoding.row_fingerprints import EMPTY_TEXT_HASH

KINDS = ("exact", "normal", "conversation", "prompt", "near", "answer")
HASHED_KINDS = ("exact", "normal", "prompt", "answer")
"""Those that one fingerprint of a row tells"""
WITH_PROMPT = ("exact", "normal", "prompt")
"""Those in which the prompt counts, and so every column that a script puts into it"""
LEAKS = {
    "exact": "are in the training set",
    "normal": "are in the training set, except for case, space and punctuation",
    "conversation": "are turns of conversations whose other turns are in the training set",
    "prompt": "have a prompt that is in the training set with another answer",
    "near": "are nearly the same as a training row",
    "answer": "have the same answer, word for word, as training rows with other questions",
}
AS_WHAT = {
    "exact": "the same as",
    "normal": "the same as",
    "conversation": "a turn of the conversation in",
    "prompt": "the same prompt as",
    "near": "nearly the same as",
    "answer": "the same answer as",
}
"""How a case names the training row, by kind"""
WARNINGS = ("prompt", "answer")
"""Questions are asked again in any log; that the model saw the answer to this question is what spoils a score"""
# Chosen, not measured: labels and set phrases are shorter.
LONG_ANSWER = 60
"""Characters of an answer that two rows do not have by chance"""
ANSWERS_SHARE, MIN_ANSWERS = 0.5, 10
"""Share of the evaluation rows whose long answers were trained on, and how many differ, from which it is told"""
LONGEST_KEY = 64
"""Characters of a value by which rows may belong together"""
KEY_SHARE = 0.95
"""Share of the rows with one answer that share the value of a column, from which it says which rows belong together"""


class TrainEvalLeak(DataRule):
    code = "ROW006"
    fault = Fault.EVALUATION_ROWS_IN_TRAINING_DATA
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.origins: list[Origin] = []
        # All rows of a fingerprint, not the first alone: a row that stands twice in the evaluation
        # data leaks twice.
        self.known: dict[str, dict[int, list[int]]] = {kind: {} for kind in HASHED_KINDS}
        self.conversations = SharedConversations()
        self.sketches = np.zeros((0, 0), dtype=np.uint32)
        self.leaked: dict[str, dict[int, Origin]] = {kind: {} for kind in KINDS}
        self.keys: dict[int, dict[str, Any]] = {}
        """Short values of evaluation rows with a long answer, by row"""
        self.shared: Counter[str] = Counter()
        """Columns whose value an evaluation row and the training row with its answer share"""
        self.has_texts_beside = False
        """Do scripts read columns that are no part of the rows as they are read here? Then nearness of rows says
        nothing, and only rows are the same whose columns are"""

    def evaluation(self, rows: Iterable[Conversation]) -> None:
        """Keep the fingerprints of the evaluation rows, to find them among the training rows."""
        sketches = []
        for batch in stream_batches(
            rows,
            self.probes.renderer(),
            Encoder(self.tokenizer.backend, only_reference=self.probes.only_reference),
        ):
            prints = batch.fingerprints
            for kind, known in self.known.items():
                for i, value in enumerate(self._fingerprints_of_rows(batch, kind)):
                    # Rows without a prompt do not share one.
                    is_short = kind == "answer" and not _has_long_answer(batch.rows[i])
                    if value != EMPTY_TEXT_HASH and not is_short:
                        known.setdefault(value, []).append(len(self.origins) + i)
            for number, row in enumerate(batch.rows, len(self.origins)):
                self.conversations.remember_evaluation_row(number, row)
                if _has_long_answer(row):
                    self.keys[number] = _short_values_of_row(row)
            self.origins += [row.origin for row in batch.rows]
            sketches.append(prints.phrases)
        # Phrases of a few bytes are shared by all texts: nearness is measured on tokens alone.
        if sketches and not self.setup.are_tokens_single_bytes:
            self.sketches = np.concatenate(sketches)

    def add_batch(self, batch: Batch) -> None:
        """Note which evaluation rows stand among the training rows of a batch."""
        if not self.origins:
            return
        prints = batch.fingerprints
        for kind, known in self.known.items():
            for i, value in enumerate(self._fingerprints_of_rows(batch, kind)):
                # Taken out: the first training row is the one that is named, and a prompt that many
                # rows share is looked at once.
                for row in known.pop(value, ()):
                    self.leaked[kind].setdefault(row, batch.rows[i].origin)
                    if kind == "answer":
                        values = _short_values_of_row(batch.rows[i])
                        own = self.keys[row]
                        self.shared.update(name for name in own if own[name] == values.get(name))
        for conversation in batch.rows:
            self.conversations.compare_training_row(conversation)
        if len(self.sketches) and not self.has_texts_beside:
            for i, other in find_near_rows_in(prints.phrases, self.sketches).items():
                self.leaked["near"].setdefault(other, batch.rows[i].origin)

    def _fingerprints_of_rows(self, batch: Batch, kind: str) -> list[int]:
        """(rows,) fingerprints of one kind, with the columns that a script reads into its prompts."""
        prints: NDArray[np.uint64] = getattr(batch.fingerprints, kind)
        if kind in WITH_PROMPT:
            prints = self._fingerprints_with_script_columns(batch, prints)
        hashes: list[int] = prints.tolist()
        return hashes

    def _fingerprints_with_script_columns(
        self, batch: Batch, prints: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        """(rows,) fingerprints of rows with the columns that a script reads."""
        beside = hash_read_columns_unused_by_format(batch.rows, self.setup.columns_read, ids=False)
        self.has_texts_beside = self.has_texts_beside or bool(beside.any())
        # A row without a prompt has none beside other columns either.
        return np.where(prints == EMPTY_TEXT_HASH, prints, prints ^ beside)

    def report_data(self) -> dict[str, Any]:
        """The leaked evaluation rows by kind, as plain values for the report's `data`."""
        if not self.origins:
            return {}
        return {
            "leaks": {
                "of": len(self.origins),
                "rows": {kind: len(leaked) for kind, leaked in self._leaks_by_kind().items()},
            }
        }

    def _leaks_by_kind(self) -> dict[str, dict[int, Origin]]:
        """Evaluation rows, and where they stand in the data; each by the first kind that it fits."""
        self.leaked["conversation"] = self.conversations.leaked_evaluation_rows()
        seen: set[int] = set()
        leaks = {}
        for kind in KINDS:
            if kind == "answer" and not self._are_many_answers_leaked():
                continue
            leaks[kind] = {
                row: origin for row, origin in self.leaked[kind].items() if row not in seen
            }
            seen |= leaks[kind].keys()
        return leaks

    def _are_many_answers_leaked(self) -> bool:
        """Do so many evaluation rows have an answer that was trained on, that it is no chance and no set phrase?"""
        rows = self.leaked["answer"].keys()
        different = {self.leaked["answer"][row] for row in rows}
        return len(different) >= MIN_ANSWERS and len(rows) >= ANSWERS_SHARE * len(self.origins)

    def _remedy_for_leak(self, kind: str) -> str:
        """How to split the rows, or what to take out."""
        if kind == "conversation":
            return (
                "split by conversation first, and make rows of the turns afterwards; removing only these rows"
                " leaves others of the same conversations"
            )
        if kind != "answer":
            return "remove them from one of the two sets, and split before any augmentation"
        name = self._column_that_groups_answers()
        by = (
            f"by {name}, which these rows share"
            if name
            else ("by the source that the rows were made from")
        )
        return f"split {by}, so that no answer is on both sides; until then the score only measures recall"

    def _column_that_groups_answers(self) -> str:
        """The column whose value tells which rows have one answer; empty where none does."""
        rows = self.leaked["answer"].keys()
        for name, count in self.shared.most_common():
            values = {self.keys[row].get(name) for row in rows}
            if count >= KEY_SHARE * len(rows) and len(values) >= MIN_ANSWERS:
                return name
        return ""

    def measurement_if_clean(self) -> Measurement:
        """That no row of the evaluation data stands in the training data."""
        return make_count_measurement(
            "rows of the evaluation data in the training data", 0, len(self.origins)
        )

    def findings(self) -> Iterator[Finding]:
        for kind, leaked in self._leaks_by_kind().items():
            if leaked:
                yield self.finding(
                    f"{len(leaked):,} of {len(self.origins):,} evaluation rows {LEAKS[kind]}",
                    self._remedy_for_leak(kind),
                    severity="warning" if kind in WARNINGS else "error",
                    evidence=[self.conversations.evidence()] if kind == "conversation" else [],
                    cases=[
                        Case(f"{AS_WHAT[kind]} {origin}", self.origins[row])
                        for row, origin in list(leaked.items())[:MAX_CASES]
                    ],
                    count=len(leaked),
                    total=len(self.origins),
                )


def _has_long_answer(row: Conversation) -> bool:
    """Is the last answer so long that another row does not have it by chance?"""
    return len(last_answer(row) or "") >= LONG_ANSWER


def _short_values_of_row(row: Conversation) -> dict[str, Any]:
    """The columns of a row that may tell what it was made of: numbers and short texts."""
    return {
        name: value
        for name, value in (row.raw or {}).items()
        if isinstance(value, int) or (isinstance(value, str) and 0 < len(value) <= LONGEST_KEY)
    }
