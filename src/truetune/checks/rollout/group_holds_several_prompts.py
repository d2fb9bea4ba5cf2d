"""A group of completions holds answers to several prompts.

## What it does

Compares the prompts of the completions of each group, which are those beside each other, `num_generations`
at a time.

## Why it is bad

Advantages compare the answers of a group with each other. Of several prompts they say which prompt is easier: answers
to hard questions become less likely, right ones too.

## Example

```python
class OwnOrder(trl.GRPOTrainer):
    def _get_train_sampler(self, dataset=None):
        return torch.utils.data.SequentialSampler(self.train_dataset)

run = grpo(OwnOrder)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer)
```

## Fix safety

There is no automatic fix: keep the trainer's sampler, which repeats each prompt `num_generations` times.

## References

- huggingface/trl#6680
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import RolloutRule
from truetune.probe.rollout_step import RolloutStep

NO_GROUP = Unmet("no whole group is in one process, or a group is one completion")


class GroupHoldsSeveralPrompts(RolloutRule):
    code = "ROL012"
    fault = Fault.COMPLETIONS_GROUPED_ACROSS_PROMPTS
    severity = "error"
    symptoms = ("reward-does-not-rise", "agent-training")

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.groups = 0

    def unmet(self) -> Unmet | None:
        return super().unmet() or (None if self.groups else NO_GROUP)

    def findings(self) -> Iterator[Finding]:
        cases: list[Case] = []
        for number, step in self.subject.numbered_steps():
            for first, rows in _groups_of_this_process(step):
                self.groups += 1
                distinct = len({_prompt_of_row(step, row) for row in rows.tolist()})
                if distinct > 1:
                    cases.append(
                        Case(
                            f"rollout {number}, completions {first + 1} to {first + len(rows)}: {distinct} prompts"
                        )
                    )
        if not cases:
            return
        yield self.finding(
            f"{len(cases):,} of {self.groups:,} groups of {self.subject.steps[0].settings.num_generations} completions"
            " hold answers to several prompts",
            "repeat each prompt num_generations times, beside each other: keep the trainer's own sampler and collator",
            cases=cases,
            count=len(cases),
            total=self.groups,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many groups hold several prompts."""
        return make_count_measurement("groups that hold several prompts", 0, self.groups)


def _prompt_of_row(step: RolloutStep, row: int) -> str:
    """The prompt as the data have it, else its ids: an environment may write into the prompts of one row."""
    if step.prompts:
        return repr(step.prompts[row])
    return repr(step.prompt_ids[row][step.prompt_mask[row]].tolist())


def _groups_of_this_process(step: RolloutStep) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, rows) of each group that is whole in this process."""
    size = step.settings.num_generations
    if size < 2:
        return
    # A group may begin in the process before this one.
    begin = -step.first_row % size
    for first in range(begin, step.rows - size + 1, size):
        yield first, np.arange(first, first + size)
