"""The batch is so large that the whole run makes only a few optimizer steps.

## What it does
Reads what the trainer prints when it starts: the number of rows, the batch size of a step, and the number of steps. It
warns if a run over all rows makes fewer than 10 steps, or fewer than 30 if the number of processes (one per GPU) made
the batch this large. It is not reported if the loss fell by a third, or in a test run that ends within the first epoch.
It works without logged losses.

## Why it is bad
A step uses (batch size per GPU) x (accumulation) x (processes) rows. With eight GPUs, or accumulation copied from a
large data set, only a handful of steps is left. AdamW moves each weight by about the learning rate at each of them: the
model answers as before. A warm-up that is longer than the run never reaches the learning rate.

## Example
```yaml
output: |
  ***** Running training *****
    Num examples = 1,200
    Num Epochs = 3
    Instantaneous batch size per device = 8
    Total train batch size (w. parallel, distributed & accumulation) = 512
    Gradient Accumulation steps = 8
    Total optimization steps = 9
  100%|##########| 9/9 [00:36<00:00,  4.19s/it]
  {'train_runtime': 38.4, 'train_loss': 2.0864, 'epoch': 3.0}
```

## Use instead
```yaml
output: |
  ***** Running training *****
    Num examples = 1,200
    Num Epochs = 3
    Instantaneous batch size per device = 8
    Total train batch size (w. parallel, distributed & accumulation) = 64
    Gradient Accumulation steps = 1
    Total optimization steps = 57
  100%|##########| 57/57 [00:44<00:00,  1.29it/s]
  {'train_runtime': 45.9, 'train_loss': 1.2137, 'epoch': 3.0}
```

## Fix safety
Set `gradient_accumulation_steps: 1` (in the example: 8 rows x 8 GPUs = 64 per step, 57 steps), or lower
`per_device_train_batch_size`. Smaller steps take a little more time per row. With more epochs (`num_train_epochs`) over
few rows the model memorises them: watch an evaluation loss.

## References
- Zhou et al., LIMA (arXiv:2305.11206): 1,000 rows, 15 epochs, 470 steps; `max_steps=60` of Unsloth's notebooks
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.count_optimizer_steps import FEW, SCARCE
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import OutputRule
from truetune.logs.size_and_speed_of_run_by_log import outline_run

WHOLE = 0.9
"""Epochs from which a run was to see its rows; below, it is a trial"""
FALL = 1 / 3
"""Share by which a loss falls that learned something in spite of all. Chosen: a first step or two find the format, and
take a tenth or two of the loss"""
LONG_WARMUP = 0.5
"""Share of the steps from which a warm-up is worth a word"""


class _TrainingPlan(NamedTuple):
    """The counts that the trainer printed before its first step."""

    rows: int
    rows_a_step: int
    steps: int
    batch: int | None
    accumulation: int | None
    processes: int | None

    @property
    def epochs(self) -> float:
        """Passes over the rows that the planned steps make."""
        return self.steps * self.rows_a_step / self.rows

    @property
    def rows_per_step_as_product(self) -> str:
        """The rows of a step as a product of its factors, as far as they are known: `4 x 4 x 8 =
        128`
        """
        factors = (self.batch, self.accumulation, self.processes)
        if any(factor is None for factor in factors):
            return f"{self.rows_a_step:,}"
        return " x ".join(f"{factor:,}" for factor in factors) + f" = {self.rows_a_step:,}"


class FewStepsOfVeryManyRows(OutputRule):
    code = "LOG080"
    fault = Fault.TOO_FEW_OPTIMIZER_STEPS
    symptoms = ("nothing-is-learned", "several-gpus")
    severity = "warning"
    kinds = ("language", "preference")
    # It judges the same steps by the loss, where the loss hardly fell.
    moot_where = ("run-ended-after-few-steps",)

    def unmet(self) -> Unmet | None:
        """Also unmet where rows are generated, or the output does not say rows and steps."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.kind not in self.kinds:
            return Unmet("it is about runs whose steps are made of rows that are available")
        if self._training_plan() is None:
            return Unmet("the output does not say how many rows and steps the run has")
        return None

    def measurement_if_clean(self) -> str:
        """The optimizer steps, the rows, and the rows of a step."""
        plan = self._training_plan()
        assert plan is not None, "else the rule is not judged"
        return (
            f"{plan.steps:,} optimizer steps over {plan.rows:,} rows, {plan.rows_a_step:,} a step"
        )

    def findings(self) -> Iterator[Finding]:
        plan = self._training_plan()
        if plan is None or self.unmet() is not None or plan.epochs < WHOLE:
            return
        by_processes = (plan.processes or 1) > 1 and plan.steps * (plan.processes or 1) >= SCARCE
        if plan.steps >= (SCARCE if by_processes else FEW) or self._has_learned():
            return
        grew = (
            "the batch grew with the number of processes: batch size per GPU x accumulation x processes ="
            if by_processes
            else "a step uses batch size per GPU x accumulation x processes ="
        )
        yield self.finding(
            f"the whole run is only {plan.steps:,} optimizer step{'s' * (plan.steps != 1)} over {plan.rows:,} rows, too"
            f" few to learn from; {grew} {plan.rows_per_step_as_product} rows",
            _remedy(plan, by_processes=by_processes),
            evidence=[*self._evidence(plan)],
        )

    def _training_plan(self) -> _TrainingPlan | None:
        """The counts that the trainer printed before its first step; None where one is missing."""
        output = self.subject.output
        settings = output.settings if output is not None else None
        if settings is None or not settings.examples or not settings.steps:
            return None
        run = outline_run(self.subject)
        rows_a_step = settings.rows_a_step or int((run.rows_a_step if run else None) or 0)
        if not rows_a_step:
            return None
        processes = run.processes if run is not None else None
        return _TrainingPlan(
            settings.examples,
            rows_a_step,
            settings.steps,
            settings.batch,
            settings.accumulation,
            processes,
        )

    def _evidence(self, plan: _TrainingPlan) -> Iterator[str]:
        """Evidence: how few steps come about, and what else does not fit a run as short."""
        an_epoch = max(1, math.ceil(plan.rows / plan.rows_a_step))
        yield (
            f"{plan.rows:,} rows / {plan.rows_a_step:,} = {an_epoch:,} steps per epoch,"
            f" x {plan.steps / an_epoch:.3g} epochs = {plan.steps:,} steps"
        )
        loss = self.subject.curve("loss").finite()
        if loss.value.size > 1:
            yield f"the loss went from {loss.value[0]:.4g} to {loss.value[-1]:.4g}"
        warmup = self._warmup_steps()
        if warmup >= LONG_WARMUP * plan.steps:
            end = "never ends" if warmup >= plan.steps else "takes most of the run"
            yield f"the warm-up of {warmup:,.0f} steps {end}"

    def _warmup_steps(self) -> float:
        """Steps of warm-up, as the log or a file beside it says; 0 where none does, or it is a share."""
        output = self.subject.output
        printed = output.settings.warmup_steps if output is not None else None
        return float(printed or self.subject.fact_as_number("warmup_steps") or 0)

    def _has_learned(self) -> bool:
        """Did the loss fall by more than a few steps explain?"""
        loss = self.subject.curve("loss").finite()
        if loss.value.size < 2 or loss.value[0] <= 0:
            return False
        return float(loss.value[0] - loss.value[-1]) >= FALL * float(loss.value[0])


def _remedy(plan: _TrainingPlan, *, by_processes: bool) -> str:
    """The remedy: what gives more steps, the cheapest first."""
    more = "and if that is not enough, train for more epochs (num_train_epochs)"
    if by_processes and plan.accumulation and plan.accumulation > 1:
        fewer = max(1, plan.accumulation // (plan.processes or 1))
        return (
            f"divide gradient_accumulation_steps by the number of processes: {fewer:,} instead of"
            f" {plan.accumulation:,}, {more}; or train on fewer GPUs"
        )
    if plan.accumulation and plan.accumulation > 1:
        return f"set gradient_accumulation_steps to 1, {more}"
    return f"lower per_device_train_batch_size, or train on fewer GPUs, {more}"
