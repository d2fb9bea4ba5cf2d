"""KTO's desirable and undesirable examples are out of balance.

## What it does
Counts the labels of the rows, and compares the weight of each kind: `desirable_weight` x true against
`undesirable_weight` x false (both weights are 1 if the run sets none). It is an error if all labels are the same, a
warning if the ratio is more than twice outside 1 to 4/3, and an info if it is more than 10 % outside.

## Why it is bad
With only one label there is nothing to compare: the loss saturates, and answers only become more, or less, likely. Out
of balance, the rarer kind is hardly learned. The KTO paper (equation 8) and TRL recommend a ratio of 1 to 4/3.

## Example
```yaml
data:
  - {prompt: "Is it open?", completion: " It is.", label: true}
  - {prompt: "When?", completion: " At nine.", label: true}
  - {prompt: "Where?", completion: " On the hill.", label: true}
```

## Use instead
```yaml
spec: {training: {method: kto, desirable_weight: 1.0, undesirable_weight: 2.0}}
data:
  - {prompt: "Is it open?", completion: " It is.", label: true}
  - {prompt: "When?", completion: " At nine.", label: true}
  - {prompt: "Where?", completion: " Who knows?", label: false}
```

## Fix safety
Setting a weight changes only the balance. Change one of the two, not both.

## References
- huggingface/trl#1467, huggingface/trl#1734
- Ethayarajh et al. 2024, "KTO: Model Alignment as Prospect Theoretic Optimization" (arXiv 2402.01306)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.is_wrong_column_learned import last_answer
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_VERDICTS
from truetune.checks.rule import DataRule, Setup
from truetune.data.read_answer_scores_beside_pairs import read_candidate_scores
from truetune.encoding.batch import Batch
from truetune.settings.run_spec import Severity

MIN_RATIO, MAX_RATIO = 1.0, 4 / 3
"""Recommended by the KTO paper (equation 8) and TRL"""
# Chosen, not measured: a tenth beyond the range is what a random split of some hundred rows does to
# it; at twice, one kind has half of the recommended weight. At 1.5 a set with two ups to each down
# would warn.
NOTE_TIMES, WARNING_TIMES = 1.1, 2.0
"""How many times outside of that range"""

DEFAULT_KEYS = ("desirable_weight", "undesirable_weight")
"""Of TRL, ms-swift and truetune"""
KEYS = {
    "llama-factory": ("kto_chosen_weight", "kto_rejected_weight"),
    "axolotl": ("kto_desirable_weight", "kto_undesirable_weight"),
}
"""What the stacks call the weights of true and of false labels, by trainer"""
COMPARED = 500
"""Rows whose answers are looked for in the files beside, where all labels are one"""


class KtoImbalance(DataRule):
    code = "PREF010"
    fault = Fault.KTO_LABELS_UNUSABLE
    symptoms = ("dpo-without-effect",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.good = self.bad = 0
        self.answers: list[tuple[str, str]] = []
        """File and answer of the first rows"""
        self.ratio = 0.0
        """What the true labels weigh against the false ones"""

    def add_batch(self, batch: Batch) -> None:
        """Count the true and the false labels of a batch, and keep the first answers."""
        for row in batch.rows:
            if row.label is not None:
                self.good += row.label
                self.bad += not row.label
                if len(self.answers) < COMPARED:
                    self.answers.append((row.origin.file, last_answer(row) or ""))

    def unmet(self) -> Unmet | None:
        """Unmet without rows with a label."""
        return None if self.good + self.bad else NO_VERDICTS

    def measurement_if_clean(self) -> Measurement:
        """How many labels are true, and how both sides are weighed."""
        weights = f" (weighed {self.ratio:.2f} to 1; recommended are 1 to 1.33)"
        return make_count_measurement(
            "labels that are true", self.good, self.good + self.bad, weights
        )

    def findings(self) -> Iterator[Finding]:
        if not self.good and not self.bad:
            return
        if not self.good or not self.bad:
            yield self._report_one_label()
            return
        training = self.spec.training
        up = 1.0 if training.desirable_weight is None else training.desirable_weight
        down = 1.0 if training.undesirable_weight is None else training.undesirable_weight
        self.ratio = up * self.good / (down * self.bad) if down else float("inf")
        off = max(MIN_RATIO / self.ratio if self.ratio else float("inf"), self.ratio / MAX_RATIO)
        if off > NOTE_TIMES:
            yield self._report_unequal_label_weights(
                up, down, "warning" if off > WARNING_TIMES else "info"
            )

    def _report_one_label(self) -> Finding:
        """The finding that all labels are true, or that all are false."""
        total = self.good + self.bad
        only, other = ("true", "false") if self.good else ("false", "true")
        beside = self._evidence_of_labels_in_nearby_file()
        remedy = (
            f"add examples with the label {other}, or train with SFT on the desirable answers only"
        )
        if beside:
            remedy = (
                "convert the column by its value in the script that makes the rows (text in ('1', 'true')), since"
                " bool('0') and bool('False') are True"
            )
        return self.finding(
            f"all {total:,} labels are {only}: KTO has nothing to compare" + beside,
            remedy,
            count=total,
            total=total,
        )

    def _evidence_of_labels_in_nearby_file(self) -> str:
        """Evidence that a column of a file beside has two values for the same answers: the rows
        lost it.

        Empty if none has.
        """
        if not self.answers:
            return ""
        candidates = read_candidate_scores(self.answers[0][0])
        values: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for _, answer in self.answers:
            for column, score in candidates.of(answer).items():
                values[column][str(score.raw)] += 1
        two = [
            (column, counts)
            for column, counts in values.items()
            # Half: some answers may stand twice, with both labels.
            if len(counts) == 2 and 2 * counts.total() >= len(self.answers)
        ]
        if not two:
            return ""
        column, counts = max(two, key=lambda one: one[1].total())
        shown = " and ".join(f"{value!r} ({count:,})" for value, count in counts.most_common())
        return f"; {column}, beside the same answers, has {shown}: the conversion lost it"

    def _report_unequal_label_weights(self, up: float, down: float, severity: Severity) -> Finding:
        """The labels weigh too unequally.

        Args:
            up: the weight of a true label.
            down: the weight of a false one.
            severity: how far off they are.
        """
        # What each of the two weights would have to be for either end of the range, the other one
        # left as it is.
        ups = [down * self.bad / self.good * bound for bound in (MIN_RATIO, MAX_RATIO)]
        downs = [up * self.good / self.bad / bound for bound in (MAX_RATIO, MIN_RATIO)]
        up_key, down_key = KEYS.get(self.setup.trainer.name or "", DEFAULT_KEYS)
        return self.finding(
            f"{self.good:,} true and {self.bad:,} false labels are weighted {self.ratio:.2f} to 1, so the rarer kind"
            " is hardly learned (recommended: 1 to 1.33)",
            f"set {up_key} to a value from {ups[0]:.2f} to {ups[1]:.2f}, or {down_key} to a value from"
            f" {downs[0]:.2f} to {downs[1]:.2f}",
            severity=severity,
            evidence=[f"{up_key} {up:g}, {down_key} {down:g}"],
            count=self.good,
            total=self.good + self.bad,
        )
