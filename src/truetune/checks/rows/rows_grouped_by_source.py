"""Neighbouring rows come from the same source.

## What it does
Compares the words that neighbouring rows share with those that random rows share (MinHash over tokens). Numbers don't
count: rows sorted by a running number or a date share their first digits. It also compares how often neighbours have
the same value in an unused column (`source`, `chunk_id`, any name), the same label, or the same answer (if answers are
a few labels), with what chance gives. It is an info if the trainer shuffles, or if groups have only two or three rows;
otherwise a warning.

## Why it is bad
If the rows are read in file order (streams, `shuffle=False`, packing before shuffling), a batch contains only one
document or one task. The loss moves in steps, and what came last weighs most. A file that is sorted by label and split
without shuffling is tested on labels that were never trained on.

## Example
```yaml
data: {grouped: 120}
```

## Use instead
```yaml
data: {shuffled: 120}
```

## Fix safety
Shuffling the file once, with a fixed seed, is safe. Trainers that shuffle a map-style data set do it anyway.

## References
- huggingface/datasets#7854, huggingface/datasets#8565, lucidrains/DALLE-pytorch#230
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tokenizers
from numpy.typing import NDArray

from truetune.checks.do_neighbouring_rows_share_values import ANSWER, KeyColumns
from truetune.checks.faults import Fault
from truetune.checks.find_near_copies import GrowingArray
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import DataRule, Setup
from truetune.checks.severity_by_trainer import SeverityByFact, SeverityForFact
from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.encoding.batch import Batch

# The difference of two means over n pairs is known to about 1/sqrt(n) of its spread: of 100 rows,
# to a tenth.
MIN_ROWS = 100
"""Rows from which an order can be told from chance"""
SHORT_RUN_ROWS = 4.0
"""Rows of one key in a row, on average, below which a batch still holds several keys"""
# Measured on LLaMA-Factory's demo data and tinker-cookbook's chats (eleven sets, 4,268 rows): from
# -0.04 to 0.02, the most where two sets were joined end to end. Sources one after the other differ
# by the share of words that each has to itself. At 0.04 none of these warns; at 0.02 the joined one
# does.
MIN_DIFFERENCE = 0.08
"""How much more of their words neighbours must share than rows at random."""
# By chance once in three million files.
MIN_STANDARD_ERRORS = 5.0
"""Standard errors that the difference must be above nothing"""
SHOWN_KEYS = 4
LABELS = (ANSWER, *COLUMN_ALIASES["label"])
WORD_BEGINNINGS = "\u0120\u2581 "
"""How byte-level tokenizers and SentencePiece write the space before a word"""


class NumberTokens:
    """Tokens that are digits alone: rows with a running number or a date share them with their neighbours."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._token = backend.id_to_token
        self._known = np.zeros(0, dtype=np.bool_)
        self._digits = np.zeros(0, dtype=np.bool_)

    def is_number_by_id(self, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """(vocabulary,) true for ids that are numbers; right only for these `ids` and those asked
        for before.
        """
        more = max(0, int(ids.max(initial=-1)) + 1 - len(self._known))
        self._known = np.pad(self._known, (0, more))
        self._digits = np.pad(self._digits, (0, more))
        for id in np.unique(ids[~self._known[ids]]).tolist():
            self._known[id] = True
            token = self._token(id) or ""
            self._digits[id] = token.lstrip(WORD_BEGINNINGS).isdigit()
        return self._digits


class RowsGroupedBySource(DataRule):
    code = "ROW008"
    fault = Fault.ROWS_IN_FIXED_ORDER
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False
    by_trainer = (
        SeverityByFact(
            "shuffles",
            {
                True: SeverityForFact(
                    "info", "{trainer} shuffles the rows, unless they are a stream"
                )
            },
        ),
    )

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.words = GrowingArray()
        self.numbers = NumberTokens(setup.tokenizer.backend)
        self.keys = KeyColumns()
        self.shared = (0.0, 0.0)
        """The share of their words that neighbours have in common, and rows at random"""

    def add_batch(self, batch: Batch) -> None:
        """Keep the values and the words of a batch's rows, to be compared with those of their neighbours."""
        self.keys.add(batch.rows)
        self.words.add(batch.word_sketches(self.numbers.is_number_by_id(batch.ids)))

    def unmet(self) -> Unmet | None:
        """Unmet where the rows are too few to tell an order from chance."""
        rows = len(self.words.whole())
        if rows >= MIN_ROWS:
            return None
        return Unmet(
            f"{rows:,} rows are too few to tell an order from chance",
            f"give at least {MIN_ROWS} rows",
        )

    def measurement_if_clean(self) -> str:
        """The share of words that neighbouring rows have in common, beside that of rows at random."""
        near, random = self.shared
        words = f"words that neighbouring rows share: {near:.1%}, rows at random: {random:.1%}"
        return "; ".join([words, *map(str, self.keys.columns_with_shared_values()[:SHOWN_KEYS])])

    def findings(self) -> Iterator[Finding]:
        rows = len(self.words.whole())
        if rows < MIN_ROWS:
            return
        by_words, keys = self._do_neighbours_share_words(), self.keys.columns_that_group_rows()
        if not keys and not by_words:
            return
        near, random = self.shared
        words = f"neighbouring rows share {near:.0%} of their words, rows at random {random:.0%}"
        message = (
            f"{words}: the file is grouped by source, so batches read in file order are one-sided"
        )
        if keys:
            runs = keys[0]
            message = (
                f"{runs.alike_neighbour_share:.0%} of neighbouring rows have the same {runs.display_name}, but only"
                f" {runs.alike_share_by_chance:.1%} of random rows: the file is grouped by it"
                f" ({runs.distinct_value_count:,} groups)"
            )
            if any(runs.column in LABELS for runs in keys):
                message += ". A split without shuffling tests on labels that were not trained on"
        short = all(runs.mean_run_length < SHORT_RUN_ROWS for runs in keys) and not by_words
        others = [
            f"{runs}: {'grouped' if runs.is_grouped else 'not grouped'}"
            for runs in self.keys.columns_with_shared_values()
        ]
        yield self.finding(
            message,
            "shuffle the rows once, before any split (dataset.shuffle(seed=42), or shuf FILE); or make sure that"
            " both the split and the trainer shuffle (train_test_split(shuffle=False), slices and streams do not)",
            severity="info" if short else None,
            evidence=[f"{rows:,} rows; {words}", *others[:SHOWN_KEYS]],
            total=rows,
        )

    def _do_neighbours_share_words(self) -> bool:
        """Do neighbours share more of their words than rows at random, beyond chance?"""
        words = self.words.whole()
        # Neighbours in a random order are rows at random, as many as there are neighbours. The seed
        # is fixed: the same file gives the same report.
        order = np.random.default_rng(0).permutation(len(words))
        near = (words[1:] == words[:-1]).mean(axis=1)
        random = (words[order[1:]] == words[order[:-1]]).mean(axis=1)
        self.shared = (float(near.mean()), float(random.mean()))
        difference = self.shared[0] - self.shared[1]
        error = float(np.sqrt((near.var() + random.var()) / len(near)))
        return difference > MIN_DIFFERENCE and difference > MIN_STANDARD_ERRORS * error
