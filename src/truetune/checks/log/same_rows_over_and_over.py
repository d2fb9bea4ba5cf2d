"""The run trained on only a few of the rows, or on the same few rows many times.

## What it does
Counts the rows that the run trained on: those that the trainer counts or tokenizes, or the rows of all steps divided by
the epochs. It compares them with the rows of the data file, if the log counts these (`wc -l`, `Generating train
split`). It warns if less than 10 % were trained on, in 10 epochs or more or with at most 200 rows in all. If the file's
rows are not known, it reports as info 50 epochs or more with a loss that fell to nearly nothing.

If all processes (one per GPU) print the same loss at each step, it compares the rows in an epoch of one process (its
steps times the batch of one device) with those of the file, and warns if these are all of them. Evaluation sets and
packed runs are not judged.

## Why it is bad
A limit from a test run is still set: an environment variable, an option, `select(range(64))`. The run takes as long as
usual, because it counts steps, and its loss is very low because the rows are memorised. On anything else the model is
as before, or worse. If every process gets all rows in the same order, they do the same work: four GPUs are as slow as
one, and a step has a quarter of the intended rows.

## Example
```yaml
output: |
  18421 data/train.jsonl
  Map: 100%|██████████| 64/64 [00:01<00:00, 46.12 examples/s]
  {'loss': 0.95, 'epoch': 100.0}
  {'loss': 0.05, 'epoch': 200.0}
  {'loss': 0.011, 'epoch': 300.0}
```

## Use instead
```yaml
output: |
  18421 data/train.jsonl
  Map: 100%|██████████| 18421/18421 [00:21<00:00, 846.12 examples/s]
  {'loss': 0.95, 'epoch': 1.0}
  {'loss': 0.85, 'epoch': 2.0}
  {'loss': 0.81, 'epoch': 3.0}
```

## Fix safety
Counting changes nothing. The training has to be repeated from the base with all rows. A `DistributedSampler` makes a
step larger: you may have to adapt the learning rate.

## References
- Hugging Face Datasets documentation, "Slice splits"; transformers' example scripts, `max_train_samples`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.count_optimizer_steps import steps_of_ended_log
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import OutputRule
from truetune.logs.console.read_console_output import ConsoleOutput

FEW_ROWS = 200
"""Rows of a trial: as `few-rows-reach-the-trainer` has it"""
FEW_OF_FILE = 0.1
"""Share of the file's rows. Who takes a part of a large set on purpose seldom takes less, and then not many times"""
MANY_EPOCHS = 10
"""Published recipes make 1 to 5 epochs, LIMA 15 over its 1,000 rows"""
VERY_MANY_EPOCHS = 50
"""More than any published recipe of a language model"""
KNOWN_BY_HEART = 0.1
"""Nats/token; free text that is not known by heart is seldom below 0.5"""


class _TrainedRows(NamedTuple):
    """The rows that a run trained."""

    rows: int
    why: str
    is_mapped: bool = False
    """Are these the rows that were tokenized? Those that a trainer counts may be packs of them"""


class SameRowsOverAndOver(OutputRule):
    code = "LOG131"
    fault = Fault.ROWS_MISSING_FROM_TRAINING
    symptoms = ("nothing-is-learned", "odd-metrics", "garbage-output")
    severity = "warning"
    kinds = ("language", "preference")
    needs = ("loss",)

    def unmet(self) -> Unmet | None:
        """Also unmet where rows are not given but generated, are packed, or are not counted in the
        output.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.kind not in self.kinds or not self.subject.curve("loss"):
            return Unmet("it is about losses of rows that are given")
        if self.subject.facts.get("packing"):
            return Unmet("packing makes other rows of the data")
        if self._rows_of_each_process() is None and self._trained_rows() is None:
            return Unmet("the output does not say how many rows were trained")
        return None

    def measurement_if_clean(self) -> str:
        """How many rows of the file were trained, in how many epochs."""
        trained, of_file = self._trained_rows(), self._rows_of_data_file()
        if trained is None:
            return ""
        known = f" of {of_file:,}" if of_file else ""
        return f"{trained.rows:,}{known} rows in {self.subject.epochs_at_end:.3g} epochs"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        yield from self._findings_on_equal_batches()
        trained, of_file = self._trained_rows(), self._rows_of_data_file()
        if trained is None:
            return
        epochs = self.subject.epochs_at_end
        if self._is_small_part_of_file(trained, of_file):
            yield self.finding(
                f"the run trained on only {trained.rows:,} of {of_file:,} rows{_passes_in_words(epochs)}",
                "if this is not a test run, find what limits the rows (a variable like SMOKE_TEST or DEBUG, an option"
                " like max_train_samples, a .select(range(...)) or [:N]), remove it, and train again from the base",
                evidence=[trained.why],
            )
        elif epochs >= VERY_MANY_EPOCHS and self._are_rows_memorized():
            yield self.finding(
                f"the run saw the same {trained.rows:,} rows {epochs:,.0f} times, and its low loss shows that it has"
                " memorised them",
                "nothing to do if this tests whether the rows can be learned; otherwise train on all rows (is a limit"
                " of a test run still set?) for 1 to 5 epochs, and watch an evaluation loss",
                severity="info",
                evidence=[trained.why],
            )

    def _findings_on_equal_batches(self) -> Iterator[Finding]:
        """The finding on processes that all train on the same batches."""
        rows, output = self._rows_of_each_process(), self.subject.output
        equal = output.equal_rank_losses if output is not None else None
        of_file = self._rows_of_data_file()
        if rows is None or output is None or equal is None or not of_file:
            return
        # A last batch is filled up, or left out.
        if abs(rows - of_file) > (output.settings.batch or 0):
            return
        yield self.finding(
            f"{equal.ranks} processes print the same loss at {equal.equal:,} of {equal.steps:,} steps, and an epoch of"
            f" each has all {of_file:,} rows: all train on the same batches",
            "give the DataLoader a DistributedSampler (and call its set_epoch), or let accelerator.prepare split the"
            " rows between the processes",
            evidence=(
                f"{rows / (output.settings.batch or 1):,.0f} steps per epoch, {output.settings.batch} rows per device:"
                f" split between the processes, there would be"
                f" {rows / (output.settings.batch or 1) / equal.ranks:,.0f}",
            ),
            cases=(
                Case(f"step {equal.last_step:,}: loss {equal.last_loss} on each", file=output.file),
            ),
            count=equal.equal,
            total=equal.steps,
        )

    def _rows_of_each_process(self) -> float | None:
        """Rows that one process sees in an epoch, where all print the same loss; None where that is not known."""
        output, epochs = self.subject.output, self.subject.epochs_at_end
        if output is None or output.equal_rank_losses is None or epochs <= 0:
            return None
        # Under tensor parallelism processes have the same rows by right.
        if output.settings.sharded:
            return None
        batch, accumulation = output.settings.batch, output.settings.accumulation or 1
        return self.subject.last_step / epochs * batch * accumulation if batch else None

    def _is_small_part_of_file(self, trained: _TrainedRows, of_file: int) -> bool:
        """Is what was trained a small part of the file's rows, by what is known of the counts?"""
        if trained.rows >= FEW_OF_FILE * of_file:
            return False
        is_long = self.subject.epochs_at_end >= MANY_EPOCHS
        if trained.is_mapped:
            return is_long or trained.rows <= FEW_ROWS
        # Rows that were mapped and are many were packed, or the trainer's count is of packs.
        output = self.subject.output
        mapped = (output.settings.rows_mapped or 0) if output is not None else 0
        return is_long and trained.rows <= FEW_ROWS and mapped < FEW_OF_FILE * of_file

    def _rows_of_data_file(self) -> int:
        """Number of rows of the data file, as the log counts them; 0 where it does not."""
        output = self.subject.output
        return (output.settings.rows_of_file or 0) if output is not None else 0

    def _trained_rows(self) -> _TrainedRows | None:
        """The rows that were trained: mapped, counted by the trainer, else by steps and epochs."""
        output = self.subject.output
        if output is None:
            return None
        counted = self._counted_rows(output)
        mapped = output.settings.rows_mapped
        if mapped and _is_mapped_count_that_of_training(mapped, counted):
            return _TrainedRows(
                mapped,
                f"the output shows that {mapped:,} rows were tokenized (or mapped)",
                is_mapped=True,
            )
        return counted

    def _counted_rows(self, output: ConsoleOutput) -> _TrainedRows | None:
        """The rows that the trainer counts, else those of the steps; None where the output says neither."""
        examples = output.settings.examples
        if examples:
            return _TrainedRows(examples, f"the trainer counts {examples:,} rows")
        optimizer_steps = steps_of_ended_log(self.subject)
        return (
            _TrainedRows(optimizer_steps.rows, optimizer_steps.why)
            if optimizer_steps is not None and optimizer_steps.rows
            else None
        )

    def _are_rows_memorized(self) -> bool:
        """Is the loss at the end that of rows that are known by heart?"""
        loss = self.subject.curve("loss").finite()
        return bool(loss) and float(loss.value[-3:].mean()) < KNOWN_BY_HEART


def _is_mapped_count_that_of_training(mapped: int, counted: _TrainedRows | None) -> bool:
    """Are the rows that were mapped those that the run trained?"""
    if counted is None:
        return True
    # Where the trainer counts more, another set was mapped, or a part came from a cache. Where it counts few of many,
    # most were left out after the mapping, or packed.
    are_few_of_many = mapped > FEW_ROWS and counted.rows < FEW_OF_FILE * mapped
    return mapped >= counted.rows and not are_few_of_many


def _passes_in_words(epochs: float) -> str:
    """How often each row was trained, as the end of a sentence: `, each of them 300 times`; empty
    for a single pass.
    """
    return f", each of them about {epochs:,.0f} times" if epochs >= 2 else ""
