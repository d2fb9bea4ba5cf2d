"""A few rows are many times longer than the others, and the length limit lets them through.

## What it does
Compares the longest examples with the 95th percentile of all lengths, after the length limit (`max_length`,
`cutoff_len`, `sequence_len`, or none with TRL's `max_length=None`), if the settings do not pack. It names these rows,
the longest first. If the limit cuts them to a harmless size, it is an info: most of each is lost.

## Why it is bad
A batch is as wide as its longest row, so that one row decides how much memory the run needs. It fails with CUDA out of
memory somewhere in the epoch, at a different step for each seed, though all other batches are small. Usually such a row
is not text: a base64 picture, a file dump, two rows that were joined.

## Example
```yaml
spec: {trained_by: trl, training: {no_length_limit: true}}
data:
  - messages: [{role: user, content: {repeat: 30000, text: "/9j/4AAQ "}}, {role: assistant, content: A scan.}]
  - {copies: 20, of: {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}}
```

## Use instead
```yaml
spec: {trained_by: trl, training: {no_length_limit: true}}
data: {rows: 40, text: "{words}"}
```

## Fix safety
A limit cuts rows: `truetune check DATA --max-length N` counts what is lost. Dropping a row that is not text is safe.

## References
- huggingface/trl#2400, https://huggingface.co/docs/trl/reducing_memory_usage (truncation)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_example
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_EXAMPLE, explain_uncounted_tokens
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.count_media import Media
from truetune.encoding.batch import Batch

# At 5 long documents among chats would be told; at 20 a row that takes 20 times the memory of its
# batch would pass.
TIMES = 10
"""How many times the 95th percentile: long documents among chats are 3 to 6 times as long"""
# Chosen, not measured: what the usual limits of trainers let through, and their users have memory
# for.
MIN_LENGTH = 4096
"""Tokens of a row that no GPU has trouble with"""
MIN_EXAMPLES = 20
"""Examples from which on the 95th percentile is not the longest one"""


class OneRowDecidesMemory(DataRule):
    code = "ROW002"
    fault = Fault.RUN_EXCEEDS_GPU_MEMORY
    symptoms = ("out-of-memory",)
    severity = "warning"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        training, cut = setup.spec.training, setup.trainer.cut.value
        self.limit = setup.spec.max_length
        if self.limit is None and not training.no_length_limit:
            self.limit = cut.limit
        self.drops = self.limit is not None and cut.action in ("drop", "count")
        """Rows beyond the limit are left out: rules on lengths count them"""
        is_named = self.limit is not None or training.no_length_limit
        self.is_judged = is_named and not training.packing
        self.lengths: list[np.ndarray] = []
        self.long: list[tuple[int, Case]] = []
        self.media = Media()

    def add_batch(self, batch: Batch) -> None:
        """Keep the lengths of a batch's examples, and the longest ones as cases."""
        if not self.is_judged:
            return
        self.media += batch.media
        kept = np.asarray(batch.lengths)
        if self.drops and self.limit is not None:
            kept = kept[kept <= self.limit]
        self.lengths.append(kept)
        for i in np.flatnonzero(batch.lengths >= MIN_LENGTH).tolist():
            length = int(batch.lengths[i])
            self.long.append((length, case_in_example(batch, i, None, f"{length:,} tokens")))
        # The longest of all batches so far; sorted each time, so that no more than MAX_CASES are
        # ever kept.
        self.long = sorted(self.long, key=lambda found: -found[0])[:MAX_CASES]

    def unmet(self) -> Unmet | None:
        """Unmet where nothing sets a limit of length, examples are few, or hold media whose tokens are not counted."""
        if not self.is_judged:
            return Unmet(
                "it is about settings that give a limit of length, or none (max_length=None), and"
                " do not pack",
            )
        if sum(map(len, self.lengths)) < MIN_EXAMPLES:
            return (
                NO_EXAMPLE
                if not self.lengths
                else Unmet(f"it is about {MIN_EXAMPLES} examples or more")
            )
        return explain_uncounted_tokens(self.media, is_named=False)

    def measurement_if_clean(self) -> Measurement:
        """How many examples are many times as long as usual."""
        lengths = np.concatenate(self.lengths)
        usual = self._percentile_95_of_lengths(lengths)
        return make_count_measurement(
            f"examples of more than {TIMES} times the usual length ({usual:,} tokens)",
            int((lengths > TIMES * usual).sum()),
            len(lengths),
        )

    def findings(self) -> Iterator[Finding]:
        lengths = np.concatenate(self.lengths) if self.lengths else np.zeros(0, int)
        if len(lengths) < MIN_EXAMPLES or not self.long:
            return
        usual = self._percentile_95_of_lengths(lengths)
        far = lengths >= max(MIN_LENGTH, TIMES * usual)
        if not far.any():
            return
        cases = [case for length, case in self.long if length >= TIMES * usual]
        longest, count = int(lengths.max()), int(far.sum())
        many = (
            f"{count:,} of {len(lengths):,} examples are many times longer than the others: up to {longest:,}"
            f" tokens, while 95 % have at most {usual:,}"
        )
        # A limit that cuts these rows keeps the memory in bounds; their length is still worth a
        # look.
        if self.limit is not None and self.limit < max(MIN_LENGTH, TIMES * usual):
            yield self.finding(
                f"{many}; they are cut at {self.limit:,}",
                "look at these rows, and drop or split them",
                severity="info",
                cases=cases,
                count=count,
                total=len(lengths),
            )
            return
        limit = "there is no limit" if self.limit is None else f"the limit is {self.limit:,}"
        yield self.finding(
            f"{limit}, and {many}; the longest row decides the memory of its batch",
            f"look at these rows, and drop them, or set a length limit that the other rows need ({usual:,} tokens;"
            " max_length in TRL, cutoff_len in LLaMA-Factory, sequence_len in Axolotl)",
            cases=cases,
            count=count,
            total=len(lengths),
        )

    @staticmethod
    def _percentile_95_of_lengths(lengths: np.ndarray) -> int:
        """The 95th percentile of the lengths."""
        return int(np.percentile(lengths, 95))
