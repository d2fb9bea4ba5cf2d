"""Several independent trainings write to one output.

## What it does
Counts how often each training record is in the console output. It fires if each is there several times, and as many
processes print when they start that each is the only one (a step with as many rows as one GPU takes with accumulation,
`world size: 1`, `distributed training: False`). It warns if the copies have nearly the same loss but not exactly: the
processes of one run print the same value. A run that was started again is not reported, nor are copies with exactly the
same numbers, which two log handlers of one process print.

## Why it is bad
Four processes that were started without a launcher (plain `python` in each task of srun, a loop over the GPUs) do the
same training four times. All GPUs are busy, an epoch takes as long as on one, and the processes overwrite each other's
checkpoints.

## Example
```yaml
output: |
  Instantaneous batch size per device = 4
  Total train batch size (w. parallel, distributed & accumulation) = 16
  Gradient Accumulation steps = 4
  Instantaneous batch size per device = 4
  Total train batch size (w. parallel, distributed & accumulation) = 16
  Gradient Accumulation steps = 4
  {'loss': 1.5936, 'learning_rate': 2.0e-05, 'epoch': 0.01}
  {'loss': 1.5935, 'learning_rate': 2.0e-05, 'epoch': 0.01}
  {'loss': 1.5027, 'learning_rate': 4.0e-05, 'epoch': 0.02}
  {'loss': 1.5026, 'learning_rate': 4.0e-05, 'epoch': 0.02}
  {'loss': 1.4136, 'learning_rate': 6.0e-05, 'epoch': 0.03}
  {'loss': 1.4136, 'learning_rate': 6.0e-05, 'epoch': 0.03}
  {'loss': 1.3768, 'learning_rate': 8.0e-05, 'epoch': 0.04}
  {'loss': 1.3769, 'learning_rate': 8.0e-05, 'epoch': 0.04}
  {'loss': 1.3119, 'learning_rate': 1.0e-04, 'epoch': 0.05}
  {'loss': 1.3118, 'learning_rate': 1.0e-04, 'epoch': 0.05}
```

## Use instead
```yaml
output: |
  Instantaneous batch size per device = 4
  Total train batch size (w. parallel, distributed & accumulation) = 32
  Gradient Accumulation steps = 4
  {'loss': 1.5936, 'learning_rate': 2.0e-05, 'epoch': 0.01}
  {'loss': 1.5027, 'learning_rate': 4.0e-05, 'epoch': 0.02}
  {'loss': 1.4136, 'learning_rate': 6.0e-05, 'epoch': 0.03}
  {'loss': 1.3768, 'learning_rate': 8.0e-05, 'epoch': 0.04}
  {'loss': 1.3119, 'learning_rate': 1.0e-04, 'epoch': 0.05}
```

## Fix safety
One run over all GPUs has a larger effective batch: lower `gradient_accumulation_steps`, or choose the learning rate for
it.

## References
- https://docs.pytorch.org/docs/stable/elastic/run.html; transformers documentation, `Trainer` (main process alone logs)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import OutputRule
from truetune.logs.console.records_printed_by_several_trainings import RepeatedRecords


class ProcessesTrainApartInOneLog(OutputRule):
    code = "LOG145"
    fault = Fault.PROCESSES_TRAIN_SEPARATELY
    symptoms = ("several-gpus",)
    severity = "error"
    stability = "preview"

    @property
    def _repeated_records(self) -> RepeatedRecords:
        """The records that the output holds several times; empty without an output."""
        output = self.subject.output
        return output.repeated if output is not None else RepeatedRecords()

    def measurement_if_clean(self) -> str:
        """How many times each record stands in the log."""
        repeated = self._repeated_records
        return f"each record {max(1, repeated.copies)} times"

    def findings(self) -> Iterator[Finding]:
        output, repeated = self.subject.output, self._repeated_records
        are_alone = repeated.are_other and repeated.alone >= repeated.copies
        if output is None or repeated.copies < 2 or not (are_alone or repeated.are_near):
            return
        copies = repeated.copies
        losses = ", ".join(f"{one:.6g}" for one in repeated.losses[:4])
        why = f"{repeated.alone} processes each print that they are the only one"
        if not are_alone:
            why = f"their losses are nearly the same ({losses}), while one run prints one value"
        cases = [Case(repeated.text, file=output.file, line=repeated.line)] if are_alone else []
        yield self.finding(
            f"each training record is printed {copies} times, and {why}: {copies} independent trainings run at the same"
            " time, each on all rows, so the job takes as long as one of them",
            _advice(copies, are_alone=are_alone),
            severity="error" if are_alone else "warning",
            evidence=(f"one record, {copies} times: loss {losses}",) if are_alone else (),
            cases=cases,
        )


def _advice(copies: int, *, are_alone: bool) -> str:
    """Advice how to make one run of single processes, or of launches that do not meet."""
    if not are_alone:
        return (
            f"start one run instead of {copies}: on one node torchrun --nproc-per-node N SCRIPT for its N GPUs, on"
            " several nodes the same with --nnodes and one --rdzv-endpoint (or --num_machines of accelerate)"
        )
    return (
        f"start one run with {copies} processes: torchrun --nproc-per-node {copies} SCRIPT (or accelerate launch"
        f" --num_processes {copies} SCRIPT), once on each node, instead of plain python in each task"
    )
