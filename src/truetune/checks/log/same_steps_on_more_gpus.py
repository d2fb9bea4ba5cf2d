"""Two runs make the same number of steps although one uses far more rows per step: it is not faster.

## What it does
Compares the log with the other logs that were given with it. It fires for the run with the larger steps if both planned
the same number of optimizer steps (`max_steps`) and a step has at least 1.5 times the rows. With more GPUs that is a
warning, with a larger batch it is info. It names epochs, rows and time of both. It also warns if an epoch has as many
batches on each of several processes as on the fewer ones of the other log, and takes about as long: then every process
reads all rows.

## Why it is bad
`max_steps` counts steps, however many rows a step has. On eight GPUs, the run then sees eight times the rows in the
same time: it looks as if more GPUs were not faster, and it trains for eight times the epochs.

## Example
```yaml
curve:
  loss: {from: 1.6, to: 1.2, steps: 100}
state: {max_steps: 100, train_runtime: 610.0, train_samples_per_second: 10.49}
runs:
  - {file: one.log, steps: 100, total: 100, rows_a_step: 8, processes: 1, nodes: 1, step_seconds: 6.0,
     rows_a_second: 1.3, epochs: 0.4, seconds: 600.0}
```

## Use instead
```yaml
curve:
  loss: {from: 1.6, to: 1.2, steps: 100}
state: {max_steps: 100, train_runtime: 76.0, train_samples_per_second: 10.52}
runs:
  - {file: one.log, steps: 800, total: 800, rows_a_step: 1, processes: 1, nodes: 1, step_seconds: 0.75,
     rows_a_second: 1.3, epochs: 0.4, seconds: 600.0}
```

## Fix safety
With `num_train_epochs` instead of `max_steps`, the schedule is computed for the new number of steps. A larger step may
need another learning rate.

## References
- huggingface/transformers, TrainingArguments: max_steps overrides num_train_epochs
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import LogRule
from truetune.logs.facts_in_files_beside_log import RunBeside
from truetune.logs.size_and_speed_of_run_by_log import outline_run

SAME_BATCHES = 0.02
"""Epochs whose batches differ by less have as many: the last batch may be filled up or left out"""
# A batch that is smaller by the number of processes takes a share of the time, and then as many batches are right.
# Chosen, not measured: half of the rows take 0.5 to 0.7 of the time; DDP itself adds a few percent.
SAME_EPOCH_TIME = 0.8
"""Share of the other run's time from which on an epoch takes about as long"""
MORE_ROWS = 1.5
"""Times as many rows in a step that are worth a word"""
SAME_TIME = 0.6
"""Share of the other run's time from which a run is not much faster"""


class SameStepsOnMoreGpus(LogRule):
    code = "LOG067"
    fault = Fault.TOO_FEW_OPTIMIZER_STEPS
    symptoms = ("several-gpus",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet where no other log is given, or planned steps and rows per step are not known."""
        if not self.subject.files_beside.runs:
            return Unmet("no other log was given with it")
        own = outline_run(self.subject)
        if own is not None and own.epoch_batches and own.processes:
            return None
        if own is None or own.total is None or own.rows_a_step is None:
            return Unmet(
                "the log does not say how many steps were planned, or how many rows a step has"
            )
        return None

    def measurement_if_clean(self) -> str:
        """The rows, epochs and time of this run; empty where they are not known."""
        own = outline_run(self.subject)
        if own is None:
            return ""
        return (
            _describe_run(own, "this run") if own.rows_a_step else _describe_epoch(own, "this run")
        )

    def findings(self) -> Iterator[Finding]:
        own = outline_run(self.subject)
        if own is None:
            return
        yield from self._findings_on_epochs_as_long(own)
        if not own.rows_a_step or not own.total:
            return
        smaller = [
            run for run in self.subject.files_beside.runs if _has_as_many_smaller_steps(run, own)
        ]
        if not smaller:
            return
        other = min(smaller, key=lambda run: run.rows_a_step or 0.0)
        factor = own.rows_a_step / (other.rows_a_step or 1.0)
        name = Path(other.file).name
        by_gpus = _has_more_processes(own, other)
        yield self.finding(
            f"this run and {name} both end at {own.total:,.0f} steps, but a step has {factor:.3g} times the rows"
            f" here: this run sees {factor:.3g} times as many rows, and does not end sooner",
            f"set num_train_epochs instead of max_steps, or max_steps={own.total / factor:,.0f} here: the same rows in"
            f" {factor:.3g} times fewer steps",
            severity="warning" if by_gpus else "info",
            evidence=(_describe_run(own, "this run"), _describe_run(other, name)),
        )

    def _findings_on_epochs_as_long(self, own: RunBeside) -> Iterator[Finding]:
        """Findings where each process makes as many batches an epoch as the fewer processes of
        another run did.
        """
        others = [
            run
            for run in self.subject.files_beside.runs
            if _has_epochs_as_long_on_more_processes(own, run)
        ]
        if not others:
            return
        other = min(others, key=lambda run: run.processes or 1)
        name = Path(other.file).name
        fewer = other.processes or 1
        yield self.finding(
            f"an epoch has {own.epoch_batches:,} batches on each of {own.processes} processes here, and"
            f" {other.epoch_batches:,} in {name} with {fewer}: every process reads all rows, so it does not end sooner",
            "split the rows between the processes: use a DistributedSampler, split_dataset_by_node for a stream, or in"
            " the __iter__ of an IterableDataset every world_size-th row, starting at the rank (and split them between"
            " the loader's workers too)",
            evidence=(_describe_epoch(own, "this run"), _describe_epoch(other, name)),
        )


def _has_epochs_as_long_on_more_processes(own: RunBeside, other: RunBeside) -> bool:
    """Has an epoch of this run, on more processes, as many batches and takes it about as long as in the other run?"""
    if other.file == own.file or not own.epoch_batches or not other.epoch_batches:
        return False
    if (own.processes or 1) <= (other.processes or 1):
        return False
    # A smaller batch on each process makes as many batches of fewer rows.
    if own.batch and other.batch and own.batch != other.batch:
        return False
    has_as_many = abs(own.epoch_batches - other.epoch_batches) <= SAME_BATCHES * other.epoch_batches
    return has_as_many and own.epoch_seconds >= SAME_EPOCH_TIME * other.epoch_seconds > 0


def _describe_epoch(run: RunBeside, name: str) -> str:
    """Batches and time of an epoch of a run, in words."""
    count = run.processes or 1
    return (
        f"{name}: {count} process{'es' * (count > 1)}, an epoch of {run.epoch_batches:,} batches in"
        f" {run.epoch_seconds:,.0f} s"
    )


def _has_as_many_smaller_steps(run: RunBeside, own: RunBeside) -> bool:
    """Has a run as many planned steps as this one, each of fewer rows, and did it take about as
    long?
    """
    if run.file == own.file or not run.rows_a_step or not own.rows_a_step or run.total != own.total:
        return False
    own_time, other_time = _seconds_of_planned_steps(own), _seconds_of_planned_steps(run)
    is_faster = bool(own_time and other_time and own_time < SAME_TIME * other_time)
    return own.rows_a_step >= MORE_ROWS * run.rows_a_step and not is_faster


def _has_more_processes(own: RunBeside, other: RunBeside) -> bool:
    """Has this run more processes, as far as it is known?"""
    return (own.processes or 0) > (other.processes or 1)


def _seconds_of_planned_steps(run: RunBeside) -> float | None:
    """Seconds that the planned steps take."""
    return run.seconds or (run.step_seconds * run.total if run.step_seconds and run.total else None)


def _describe_run(run: RunBeside, name: str) -> str:
    """Rows, epochs and time of a run, as far as they are known."""
    rows = run.rows_a_step or 0.0
    parts = [f"{run.total or run.steps:,.0f} steps of {rows:,.4g} rows"]
    if run.processes:
        parts.append(f"{run.processes} process{'es' * (run.processes > 1)}")
    if run.epochs:
        parts.append(f"{run.epochs:.3g} epochs")
    seconds = _seconds_of_planned_steps(run)
    if run.step_seconds:
        parts.append(f"{run.step_seconds:.3g} s per step")
    rate = run.rows_a_second or (rows / run.step_seconds if run.step_seconds else None)
    if rate:
        parts.append(f"{rate:,.3g} rows per second")
    if seconds:
        parts.append(f"{seconds:,.0f} s in all")
    return f"{name}: {', '.join(parts)}"
