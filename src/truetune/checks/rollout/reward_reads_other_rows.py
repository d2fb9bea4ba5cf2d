"""A reward function is given columns of other rows than the completions are of.

## What it does

Compares the columns that each reward function was given with those of the rows whose prompts were answered, value by
value. Columns of long texts, images and objects are left out.

## Why it is bad

Each answer is graded by another row's reference. Right answers get 0 and wrong ones sometimes 1: the reward is noise,
and rises only with what all references share.

## Example

```python
class Reversed(trl.GRPOTrainer):
    def _calculate_rewards(self, inputs, prompts, completions, completion_ids):
        return super()._calculate_rewards(inputs[::-1], prompts, completions, completion_ids)

run = grpo(Reversed)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer)
```

## Fix safety

There is no automatic fix: keep rows, prompts and completions in one order.

## References

- huggingface/trl#6680
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import (
    reason_without_rewards_or_loss,
)
from truetune.checks.rule import RolloutRule

NO_COLUMNS = Unmet(
    "the rows have no column beside the prompt that a reward function of Python was given"
)


class RewardReadsOtherRows(RolloutRule):
    code = "ROL016"
    fault = Fault.ANSWERS_COMPARED_WITH_OTHER_REFERENCES
    severity = "error"
    symptoms = ("reward-does-not-rise",)

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.compared = 0

    def unmet(self) -> Unmet | None:
        return super().unmet() or (
            None if self.compared else reason_without_rewards_or_loss(self.subject, NO_COLUMNS)
        )

    def findings(self) -> Iterator[Finding]:
        cases: list[Case] = []
        for number, step in self.subject.numbered_steps():
            for call in step.reward_calls:
                for column, values in call.columns.items():
                    own = (step.columns or {}).get(column)
                    if own is None or len(own) != len(values):
                        continue
                    self.compared += len(own)
                    cases += _differing_rows(f"rollout {number}, {call.name}", column, values, own)
        if not cases:
            return
        yield self.finding(
            f"{len(cases):,} of {self.compared:,} values that reward functions were given are those of other rows",
            "give the reward functions the rows in the order of their completions",
            cases=cases,
            count=len(cases),
            total=self.compared,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many values are of other rows."""
        return make_count_measurement(
            "values for reward functions that are of another row", 0, self.compared
        )


def _differing_rows(
    where: str, column: str, values: Sequence[Any], own: Sequence[Any]
) -> Iterator[Case]:
    """The rows in which a function was given something else than the row has."""
    for row, (given, expected) in enumerate(zip(values, own, strict=True)):
        # NaN differs from itself.
        if given != expected and not (given != given and expected != expected):
            yield Case(
                f"{where}: completion {row + 1} was given {column}={given!r}, its row has {expected!r}"
            )
