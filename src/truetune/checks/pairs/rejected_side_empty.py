"""The rejected answer is empty.

## What it does
Counts the pairs whose rejected answer contains only white space, no reasoning and no tool call. (`answer-is-empty`
reports the chosen answer.) It is an error from 10 % of the pairs, and a warning below.

## Why it is bad
Only the stop token is left of that side. The pair teaches one thing, not to stop at once: the accuracy rises, and the
model learns nothing about answers. Losses that divide by length give NaN if there is no stop token either.

## Example
```yaml
data:
  - {prompt: [{role: user, content: "Is it open?"}],
     chosen: [{role: assistant, content: It is.}], rejected: [{role: assistant, content: " "}]}
```

## Use instead
```yaml
data:
  - {prompt: [{role: user, content: "Is it open?"}],
     chosen: [{role: assistant, content: It is.}], rejected: [{role: assistant, content: Who knows.}]}
```

## Fix safety
Dropping these pairs is safe. First check whether the rejected answers are in another column (`--map rejected=COLUMN`).

## References
- huggingface/trl#6321, hiyouga/LLaMA-Factory#4402
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.make_cases_at_tokens_and_turns import case_in_rejected_side
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import pair_texts
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.render.template import REASONING_KEYS

# Chosen, not measured: a few samplers returned nothing, or the column of the rejected answers is
# the wrong one.
ERROR_SHARE = 0.1
"""Share of the pairs from which it is an error"""


class RejectedSideEmpty(PairRule):
    code = "PREF011"
    fault = Fault.TRAINING_ROWS_LACK_ANSWERS
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.empty = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the pairs of a batch whose rejected answer is empty."""
        for row in batch.rows:
            if row.rejected is not None:
                self.pairs += 1
                if not pair_texts(row).rejected.strip() and not _does_rejected_side_reason(row):
                    self.empty += 1
                    if len(self.cases) < MAX_CASES:
                        text = f"the rejected side is {str(row.rejected)[:80]}"
                        self.cases.append(case_in_rejected_side(batch, row, text))

    def measurement_if_clean(self) -> Measurement:
        """How many pairs have an empty rejected answer."""
        return make_count_measurement("pairs with an empty rejected answer", self.empty, self.pairs)

    def findings(self) -> Iterator[Finding]:
        if self.empty:
            yield self.finding(
                f"{self.empty:,} of {self.pairs:,} pairs have an empty rejected answer, so they only teach"
                " not to stop at once",
                "drop these pairs, or check that the rejected column is right (--map"
                " rejected=COLUMN)",
                severity="error" if self.empty >= ERROR_SHARE * self.pairs else "warning",
                cases=self.cases,
                count=self.empty,
                total=self.pairs,
            )


def _does_rejected_side_reason(row: Conversation) -> bool:
    """Does the rejected side think, though it says nothing? Then it is not empty."""
    return isinstance(row.rejected, list) and any(
        m.get(key) for m in row.rejected for key in REASONING_KEYS
    )
