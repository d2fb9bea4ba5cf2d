"""Preference training does not make the chosen answers more likely than the rejected ones.

## What it does
Trains all weights of a miniature of the model (same architecture, few weights) on a few pairs with the run's own loss,
and compares the log-probability of the chosen answer with that of the rejected one, before and after. It is an error if
the margin fell for most pairs, and a warning if it did not grow for half of them.

## Why it is bad
The run teaches the rejected answers, or nothing. Rewards and accuracies in the log are computed by the same faulty
code, and look right.

## Example

```python
class Turned(trl.DPOTrainer):
    def compute_loss(self, *args, **kwargs):
        return -super().compute_loss(*args, **kwargs)

run = Turned(model, copy.deepcopy(model), args=arguments(trl.DPOConfig), processing_class=tokenizer,
             train_dataset=datasets.Dataset.from_list(pairs()))
```

## Use instead

```python
run = dpo()
```

## Fix safety
There is no automatic fix. With the right sign, the chosen answers become more likely.

## References

- huggingface/trl#1627, huggingface/trl#2175
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recitation.recitation_record import read_recitation
from truetune.checks.rule import RecitationRule
from truetune.checks.shorten_text import quote_shortened


class PreferenceMarginDoesNotGrow(RecitationRule):
    code = "REC008"
    fault = Fault.PREFERENCES_NOT_LEARNED
    symptoms = ("dpo-without-effect",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        pairs = read_recitation(self.subject).get("pairs", ())
        # `not >` and not `<=`: a margin that is NaN did not grow either.
        fallen = [pair for pair in pairs if not pair["after"] > pair["before"]]
        # Pairs that contradict each other cost a few of them; from half on the direction itself is doubtful.
        if not fallen or 2 * len(fallen) < len(pairs):
            return
        yield self.finding(
            f"for {len(fallen)} of {len(pairs)} pairs, training makes the rejected answer more likely relative to the"
            " chosen one",
            "check the sign of the loss in compute_loss, and that the columns chosen and rejected are not swapped",
            severity="error" if 2 * len(fallen) > len(pairs) else "warning",
            cases=[
                Case(
                    f"{quote_shortened(pair['chosen'])} against"
                    f" {quote_shortened(pair['rejected'])}: margin from {pair['before']:.1f} to"
                    f" {pair['after']:.1f} (log-probability)"
                )
                for pair in fallen
            ],
            count=len(fallen),
            total=len(pairs),
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where no pairs were trained."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not read_recitation(self.subject).get("pairs"):
            return Unmet("it is about pairs, and rows were trained")
        return None

    def measurement_if_clean(self) -> Measurement:
        """In how many pairs the chosen answer became likelier against the rejected one."""
        pairs = read_recitation(self.subject)["pairs"]
        grown = sum(pair["after"] > pair["before"] for pair in pairs)
        return make_count_measurement(
            "pairs whose chosen answer became more likely relative to the rejected one",
            grown,
            len(pairs),
        )
