"""KTO sees answers of one side only: all are desirable, or all are undesirable.

## What it does
Reads the log of a KTO run (it logs `kl`) and looks for rewards of chosen and of rejected answers. It fires if ten
records or more have those of one side, and none has the other.

## Why it is bad
Without undesirable examples, KTO makes each answer more likely, also those that got a thumbs down; without desirable
ones, it makes each less likely. The loss falls in both cases.

## Example
```yaml
curve:
  loss: {from: 0.49, to: 0.46, steps: 30}
  kl: {from: 0.1, to: 3, steps: 30}
  rewards/chosen: {from: 0.0, to: 0.5, steps: 30}
  logps/chosen: {from: -98, to: -89, steps: 30}
```

## Use instead
```yaml
curve:
  loss: {from: 0.5, to: 0.43, steps: 30}
  kl: {from: 0.1, to: 3, steps: 30}
  rewards/chosen: {from: 0.0, to: 0.5, steps: 30}
  rewards/rejected: {from: 0.0, to: -0.4, steps: 30}
  logps/chosen: {from: -98, to: -94, steps: 30}
```

## Fix safety
Counting changes nothing. Make the labels booleans before they reach the trainer (`label == 1`, not `bool(label)`); the
run then trains on both sides.

## References
- huggingface/trl, `KTOTrainer` (`rewards/chosen` and `rewards/rejected` are logged where there are such examples)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import LogRule

SIDES = {"rewards/chosen": "rewards/rejected", "rewards/rejected": "rewards/chosen"}
IN_WORDS = {"rewards/chosen": "desirable", "rewards/rejected": "undesirable"}
# Not entered in JUDGED_CURVES: how large it is, no rule says.
MARK_OF_KTO = "kl"
"""The curve by which a log is told to be one of KTO"""
MIN_RECORDS = 10
"""A batch may hold one side by chance; so many of one side say that there is no other"""


class KtoSeesOneSide(LogRule):
    code = "LOG116"
    fault = Fault.KTO_LABELS_UNUSABLE
    symptoms = ("dpo-without-effect", "garbage-output")
    severity = "error"

    def unmet(self) -> Unmet | None:
        """Unmet where the run is not of KTO, or has too few records with rewards of one side."""
        if not self.subject.curve(MARK_OF_KTO):
            return Unmet("it is about runs of KTO, which log kl")
        if max(self.count_finite_records(name) for name in SIDES) >= MIN_RECORDS:
            return None
        return Unmet(f"it is about {MIN_RECORDS} records or more with rewards of one side")

    def measurement_if_clean(self) -> str:
        """The number of records with rewards of each side."""
        return " and ".join(
            f"{self.count_finite_records(name):,} records of {name}" for name in SIDES
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        # A log of rejected answers alone has none of the curves by which preferences are told.
        # Online methods and DPO log both sides in each record, or none; `kl` and one side are KTO's.
        if (
            log.kind not in ("preference", "language")
            or not log.curve(MARK_OF_KTO)
            or log.curve("rewards/margins")
        ):
            return
        for seen, lacking in SIDES.items():
            if self.count_finite_records(seen) < MIN_RECORDS or log.curve(lacking):
                continue
            yield self.finding(
                f"the run saw no {IN_WORDS[lacking]} example:"
                f" {self.count_finite_records(seen):,} records have {seen}, but none has"
                f" {lacking}",
                "count the labels that reach the trainer (`Counter(dataset['label'])`), and check the line that makes"
                " them: bool(-1) and bool('0') are True, and a filter may drop one side",
            )
