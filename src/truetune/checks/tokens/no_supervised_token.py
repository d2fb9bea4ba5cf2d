"""Examples have no token in the loss.

## What it does
Counts the examples without any label, before any cut, and the rows that produced no example at all.

## Why it is bad
Such a row takes time and memory and teaches nothing. A batch of them has a loss of 0 / 0, which trainers log as 0.0.

## Example
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Dropping such rows loses nothing. First check whether the answer is in another column (`--map`).

## References
- huggingface/trl#6320, unslothai/unsloth#2095, PrimeIntellect-ai/prime-rl#978
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_EXAMPLE, PROMPTS_ALONE
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.settings.training_settings import SAMPLES_ITS_ANSWERS


class NoSupervisedToken(DataRule):
    code = "LEN006"
    fault = Fault.ROWS_WITHOUT_ANY_LABEL
    stability = "stable"
    since = "0.1.0"
    moot_where = (
        "turn-roles-unknown-to-template",
        "special-token-in-structure",
        "template-rejects-rows",
        "malformed-rows",
    )
    severity = "error"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.rejected = self.empty = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows, those that could not be rendered, and those of which nothing is learned."""
        if self.setup.spec.training.method in SAMPLES_ITS_ANSWERS:
            return
        self.rows += len(batch.rows)
        self.rejected += len(batch.rejected)
        for i in np.flatnonzero(batch.count_true_per_example(batch.supervised) == 0).tolist():
            self._count_row(batch.examples[i].row)
        # A row of which no turn is learned has no example at all (`history: as-served` makes one
        # for each such turn).
        if len(batch.examples) + len(batch.rejected) < len(batch.rows):
            seen_rows = {row.origin.row for row, _ in (*batch.examples, *batch.rejected)}
            for row in batch.rows:
                if row.origin.row not in seen_rows:
                    self._count_row(row)

    def _count_row(self, row: Conversation) -> None:
        """Count a row of which nothing is learned, and keep it as a case."""
        self.empty += 1
        if len(self.cases) < MAX_CASES:
            roles = ", ".join(str(message.get("role")) for message in row.messages[:8])
            self.cases.append(
                Case(
                    f"roles: {roles}" if row.is_chat else "an empty text or completion", row.origin
                )
            )

    def unmet(self) -> Unmet | None:
        """Unmet where no row could be rendered, and where the training samples its answers."""
        if self.setup.spec.training.method in SAMPLES_ITS_ANSWERS:
            return PROMPTS_ALONE
        return None if self.rows > self.rejected else NO_EXAMPLE

    def measurement_if_clean(self) -> Measurement:
        """The number of rows without a supervised token, and how many more could not be rendered."""
        more = f" ({self.rejected:,} more could not be rendered)" if self.rejected else ""
        return make_count_measurement(
            "rows without a supervised token", self.empty, self.rows - self.rejected, more
        )

    def findings(self) -> Iterator[Finding]:
        if self.empty:
            yield self.finding(
                f"{self.empty:,} of {self.rows:,} rows have no token in the loss",
                "check whether their answer has another role or is in another column (--map role.assistant=NAME,"
                " --map answer=COLUMN); drop rows without an answer",
                cases=self.cases,
                count=self.empty,
                total=self.rows,
            )
