"""KTO's labels are text or numbers, but trainers expect true and false.

## What it does
Looks at the labels as they are in the file. It fires for text (`"True"`, `"False"`, `"0"`, `"thumbs_down"`) and for
numbers that are not 0 or 1 (-1). All trainers read the numbers 0 and 1 as false and true.

## Why it is bad
Any text that is not empty is true in Python, even `"False"`, and so is -1. Trainers that test `if label` then take
every answer as desirable, and the model learns the answers with thumbs down too. TRL 1.16 sums the labels and fails
with a TypeError. LLaMA-Factory treats rows whose tag is not a boolean as rows without one.

## Example
```yaml
data:
  - {prompt: "Is it open?", completion: " It is.", label: "True"}
  - {prompt: "When?", completion: " Who knows?", label: "False"}
```

## Use instead
```yaml
data:
  - {prompt: "Is it open?", completion: " It is.", label: true}
  - {prompt: "When?", completion: " Who knows?", label: false}
```

## Fix safety
Mapping the words to booleans is safe if you list each one (`{"True": True, "False": False}[row["label"]]`).
`bool(text)` is not safe: it is true for every word.

## References
- https://huggingface.co/docs/trl/kto_trainer (expected dataset format)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_VERDICTS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch


class KtoLabelsMisreadAsBooleans(DataRule):
    code = "PREF012"
    fault = Fault.KTO_LABELS_UNUSABLE
    symptoms = ("dpo-without-effect",)
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.verdicts = self.negative = 0
        self.values: Counter[str] = Counter()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the labels of a batch that are no boolean."""
        for row in batch.rows:
            self.verdicts += row.label is not None
            if row.label is None or not _is_label_text_or_misread_number(row):
                continue
            self.values[repr(row.label_value)] += 1
            self.negative += not row.label
            if len(self.cases) < MAX_CASES:
                self.cases.append(case_in_row(batch, row, f"the label is {row.label_value!r}"))

    def unmet(self) -> Unmet | None:
        """Unmet without rows with a label."""
        return None if self.verdicts else NO_VERDICTS

    def measurement_if_clean(self) -> Measurement:
        """How many labels are no boolean."""
        return make_count_measurement(
            "labels that are not a boolean", self.values.total(), self.verdicts
        )

    def findings(self) -> Iterator[Finding]:
        if not self.values:
            return
        values = ", ".join(f"{value} ({count:,})" for value, count in self.values.most_common(4))
        evidence = []
        if self.negative:
            evidence = [f"{self.negative:,} of them mean false but are true in Python"]
        yield self.finding(
            f"{self.values.total():,} of {self.verdicts:,} labels are not booleans: {values}. Trainers take them all"
            " as true, or fail",
            "convert them where the data is read, each value by name, e.g. {'True': True, 'False':"
            " False}[row['label']]; bool(text) does not work, since bool('False') is True",
            evidence=evidence,
            cases=self.cases,
            count=self.values.total(),
            total=self.verdicts,
        )


def _is_label_text_or_misread_number(row: Conversation) -> bool:
    """Is the label text, or a number that is true where false is meant?"""
    value = row.label_value
    return value is not None and (isinstance(value, str) or bool(value) != row.label)
