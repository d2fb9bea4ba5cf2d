"""The run made far fewer optimizer steps than another run over the same rows at the same learning rate.

## What it does
Compares a run of the Trainer with finished runs in the folders beside it, or with other states in its folder
(`trainer_state_1gpu.json`). For each it reads the rows seen (`train_runtime` and `train_samples_per_second`, else
`total_flos` over as many epochs), the optimizer steps, the highest learning rate and the last loss. It warns if the
same rows made at most half as many steps at the same learning rate, and the loss ended higher.

## Why it is bad
An optimizer step uses batch size per GPU x accumulation x processes (one per GPU) rows. On eight GPUs the same settings
make one eighth of the steps, each with eight times the rows. The run ends sooner and looks healthy, but has hardly
begun to learn: AdamW moves each weight by about the learning rate in a step, however many rows the step has.

## Example
```yaml
curve:
  loss: {from: 1.6, to: 1.2, steps: 50}
  learning_rate: {from: 2.0e-5, steps: 50}
state: {train_runtime: 660.0, train_samples_per_second: 19.39}
beside:
  - {name: run-1gpu, steps: 400, rows: 12800, peak_rate: 2.0e-5, loss: 0.65, is_evaluated: false}
```

## Use instead
```yaml
curve:
  loss: {from: 1.6, to: 0.66, steps: 400}
  learning_rate: {from: 2.0e-5, steps: 400}
state: {train_runtime: 660.0, train_samples_per_second: 19.39}
beside:
  - {name: run-1gpu, steps: 400, rows: 12800, peak_rate: 2.0e-5, loss: 0.65, is_evaluated: false}
```

## Fix safety
Dividing `gradient_accumulation_steps` by the number of processes gives the steps of the first run, and takes longer. A
higher learning rate is an experiment: for AdamW, the square root of the factor is usual.

## References
- Goyal et al. 2017, arXiv:1706.02677; Malladi et al. 2022, arXiv:2205.10287 (square root for Adam)
- huggingface/accelerate documentation, "Comparing performance across distributed setups"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import LogRule
from truetune.logs.rows_and_steps_of_sibling_runs import RunSize, size_of_finished_run

SAME_ROWS = 0.05
"""Rows that differ by less are as many: the last batch of an epoch may be filled up or left out on each process"""
SAME_EPOCHS = 0.02
"""Epochs that differ by less are as many: the last batch of a process may be left out. Chosen, not measured"""
SAME_RATE = 0.1
"""Rates that differ by less are the same: logging skips the very peak of a short run"""
FEWER = 2.0
"""Times as few steps that are worth a word: two processes instead of one"""
WORSE = 0.03
"""The loss is this share higher: less is within what seeds differ by"""


class FewerStepsThanTheRunBeside(LogRule):
    code = "LOG039"
    fault = Fault.TOO_FEW_OPTIMIZER_STEPS
    severity = "warning"
    needs = ("loss", "learning_rate")

    def unmet(self) -> Unmet | None:
        """Also unmet where no other run stands beside it, or the log does not say how many rows the
        run saw.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.beside:
            return Unmet("there is no other run of the Trainer beside it")
        if self._own_run_size() is None:
            return Unmet("the log does not say how many rows the run saw, since it has not ended")
        return None

    def measurement_if_clean(self) -> str:
        """The optimizer steps and rows of this run, and the steps of the runs beside it."""
        own = self._own_run_size()
        assert own is not None
        others = ", ".join(f"{size.name} {size.steps:,}" for size in self.subject.beside)
        rows = f" of {own.rows_per_full_step_as_text} rows" if own.rows else ""
        return f"{own.steps:,} optimizer steps{rows}; {others}"

    def findings(self) -> Iterator[Finding]:
        own = self._own_run_size()
        if own is None:
            return
        others = [size for size in self.subject.beside if _is_same_run_in_more_steps(own, size)]
        if not others:
            return
        other = min(others, key=lambda size: size.loss)
        factor = other.steps / own.steps
        what = "eval_loss" if own.is_evaluated else "loss"
        yield self.finding(
            f"{_steps_in_words(own, other)}, {_learning_rate_in_words(own)}: {what} ends at {own.loss:.3g} instead of"
            f" {other.loss:.3g}",
            "a step uses batch size per GPU x accumulation x processes rows: lower gradient_accumulation_steps (or"
            f" per_device_train_batch_size) until that product is {_advice_on_batch(other, factor)} again; or keep the"
            f" large batch, train more epochs, and raise learning_rate (for AdamW about x {factor**0.5:.2g}, with a"
            " warm-up)",
            evidence=(_same_rows_seen_in_words(own, other),),
        )

    def _own_run_size(self) -> RunSize | None:
        """The steps, rows and rate of the run of this log; None where it does not name them."""
        return size_of_finished_run(self.subject, self.subject.path)


def _is_same_run_in_more_steps(own: RunSize, other: RunSize) -> bool:
    """Did the other run see as many rows at the same rate in far more steps, and end better?"""
    if own.is_evaluated != other.is_evaluated:
        return False
    same_rate = abs(own.peak_rate - other.peak_rate) <= SAME_RATE * other.peak_rate
    # A warm-up of as many steps does not end in fewer: then the rate is the same, and was never reached.
    same_rate = same_rate or (own.is_warming_up and own.peak_rate < other.peak_rate)
    is_worse = own.loss > (1 + WORSE) * other.loss
    return (
        _saw_as_many_rows(own, other)
        and same_rate
        and other.steps >= FEWER * own.steps
        and is_worse
    )


def _saw_as_many_rows(own: RunSize, other: RunSize) -> bool:
    """Did both see as many rows: by what they measured, else by the operations of as many epochs?"""
    if own.rows and other.rows:
        return abs(own.rows - other.rows) <= SAME_ROWS * other.rows
    if not own.flos or not other.flos or abs(own.epochs - other.epochs) > SAME_EPOCHS:
        return False
    return abs(own.flos - other.flos) <= SAME_ROWS * other.flos


def _steps_in_words(own: RunSize, other: RunSize) -> str:
    """How many steps each took of how many rows, as far as these are known."""
    if own.rows and other.rows:
        return (
            f"the run made {own.steps:,} optimizer steps with {own.rows_per_full_step_as_text} rows each,"
            f" but {other.name} made {other.steps:,} with {other.rows_per_full_step_as_text} over the same"
            " number of rows"
        )
    return (
        f"the run made {own.steps:,} optimizer steps over {own.epochs:.3g} epochs, but {other.name} made"
        f" {other.steps:,} over as many: a step has about {other.steps / own.steps:.2g} times the rows"
    )


def _advice_on_batch(other: RunSize, factor: float) -> str:
    """Advice to make a step as many rows as in the other run."""
    return (
        other.rows_per_full_step_as_text
        if other.rows
        else f"that of {other.name} (here it is {factor:.2g} times that)"
    )


def _same_rows_seen_in_words(own: RunSize, other: RunSize) -> str:
    """Evidence that both runs saw as many rows."""
    if own.rows and other.rows:
        return f"{own.rows:,.0f} rows in this run, {other.rows:,.0f} in {other.name}"
    return f"total_flos {own.flos:.3g} in this run, {other.flos:.3g} in {other.name}"


def _learning_rate_in_words(own: RunSize) -> str:
    """At which learning rate both ran, in words."""
    if own.is_warming_up:
        return f"and its warm-up is longer than that (the learning rate is still rising at {own.peak_rate:.3g})"
    return f"at the same learning rate of {own.peak_rate:.3g}"
