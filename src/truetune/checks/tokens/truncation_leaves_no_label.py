"""The prompt fills max_length, so no label is left.

## What it does
Counts the examples whose supervised tokens are all after `max_length`.

## Why it is bad
A batch of such rows has a loss of 0 / 0. Some trainers silently drop them, others log 0.0, and in some one such row
turns all adapter weights into NaN.

## Example
```yaml
spec: {max_length: 8}
data:
  - messages:
      - {role: user, content: "I would like to know whether the shop on the corner is open on Sunday mornings."}
      - {role: assistant, content: It is.}
```

## Use instead
```yaml
spec: {max_length: 512}
data:
  - messages:
      - {role: user, content: "I would like to know whether the shop on the corner is open on Sunday mornings."}
      - {role: assistant, content: It is.}
```

## Fix safety
Dropping such rows loses nothing that could be learned.

## References
- huggingface/trl#6025, huggingface/trl#6320, huggingface/trl#1053, unslothai/unsloth#3019
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_example
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import (
    NO_EXAMPLE,
    NO_LIMIT,
    explain_uncounted_tokens,
)
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.severity_by_trainer import CUT_ACTIONS, SeverityByFact, SeverityForFact
from truetune.data.count_media import Media
from truetune.encoding.batch import Batch

# ln 2, the loss of a pair whose two sides are equally likely under policy and reference.
KEPT_PAIRS = (
    "a pair without a token of its answers has the same log-probability on both sides: if it is kept, its DPO loss"
    " stays at 0.693"
)


class TruncationLeavesNoLabel(DataRule):
    code = "LEN004"
    fault = Fault.ROWS_WITHOUT_ANY_LABEL
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_cut = True
    moot_where = ("truncation-cuts-pictures",)
    by_trainer = (
        CUT_ACTIONS,
        SeverityByFact(
            "cut.action",
            {
                "both": SeverityForFact(
                    "warning",
                    ("{trainer} cuts both prompt and answer, so a part of the answer remains"),
                )
            },
        ),
        SeverityByFact(
            "cut.empties",
            {
                "dropped": SeverityForFact(
                    "warning",
                    "{trainer} silently drops rows without a label",
                    holds_for_all=False,
                )
            },
        ),
    )

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.examples = self.longer = self.empty = self.pairs = 0
        self.media = Media()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the examples, those longer than max_length, and those whose supervised tokens all
        lie behind it.
        """
        self.examples += len(batch.examples)
        self.media += batch.media
        limit = self.spec.max_length
        if limit is None:
            return
        longer = np.flatnonzero(batch.lengths > limit).tolist()
        self.longer += len(longer)
        for i in longer:
            trained = np.flatnonzero(batch.supervised[batch.offsets[i] : batch.offsets[i + 1]])
            if len(trained) and trained[0] >= limit:
                self.empty += 1
                self.pairs += batch.examples[i].row.is_preference
                if len(self.cases) < MAX_CASES:
                    text = f"the first of its {len(trained):,} supervised tokens is at position {trained[0] + 1:,}"
                    self.cases.append(case_in_example(batch, i, int(trained[0]), text))

    def unmet(self) -> Unmet | None:
        """Unmet where no max_length is set, there is no example, or the tokens of media are not
        counted.
        """
        if self.spec.max_length is None:
            return NO_LIMIT
        if not self.examples:
            return NO_EXAMPLE
        return explain_uncounted_tokens(self.media, is_named=True)

    def measurement_if_clean(self) -> Measurement:
        """The number of examples without a supervised token left at max_length, and how many are
        longer than it.
        """
        what = f"examples without a supervised token left at {self.spec.max_length:,} tokens"
        return make_count_measurement(
            what, self.empty, self.examples, f" ({self.longer:,} are longer)"
        )

    def findings(self) -> Iterator[Finding]:
        if self.empty:
            yield self.finding(
                f"{self.empty:,} of {self.examples:,} examples have no label within {self.spec.max_length:,} tokens:"
                " the prompt fills the limit",
                "raise max_length, shorten the prompts, or drop these rows",
                evidence=[KEPT_PAIRS] if self.pairs else [],
                cases=self.cases,
                count=self.empty,
                total=self.examples,
            )
