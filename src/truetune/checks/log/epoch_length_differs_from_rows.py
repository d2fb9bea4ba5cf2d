"""An epoch of the run does not have as many rows as the data.

## What it does
With the data given (`--data`), compares the rows that one epoch saw with the rows in the files. An epoch's rows are its
steps times batch size, accumulation and number of processes (one per GPU). If accumulation and processes are not known,
the rule fires only if an epoch saw more rows than there are. Packed runs are not judged, nor are runs that saw more
rows but no more tokens (`num_tokens`) than the data have, since packing cuts long rows into pieces. If the log does not
show whether the run packed, too many rows are reported as info, unless the rows are shorter than any piece (256
tokens).

## Why it is bad
The run did not train on these files as they are: it read an old cache or a file that was cut off, it dropped rows, or
every process read the same rows.

## Example
```yaml
log:
  - {step: 10, loss: 2.0, epoch: 0.5}
  - {step: 20, loss: 1.8, epoch: 1.0}
state: {train_batch_size: 8, num_train_epochs: 1, max_steps: 20}
data: {rows: 100, examples: 100}
```

## Use instead
```yaml
log:
  - {step: 10, loss: 2.0, epoch: 0.5}
  - {step: 20, loss: 1.8, epoch: 1.0}
state: {train_batch_size: 8, num_train_epochs: 1, max_steps: 20}
data: {rows: 160, examples: 160}
```

## Fix safety
Delete the trainer's cache of prepared data (by default `~/.cache/huggingface/datasets`; Axolotl's `last_run_prepared`),
and compare the number of rows that the trainer prints when it starts. The data are then prepared again, which takes
time.

## References
- huggingface/datasets#5360, huggingface/datasets#5961, huggingface/trl#6351
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import LogRule

# Share of the rows. Chosen, not measured: trainers round an epoch to whole steps and drop a last batch (a step is
# allowed besides); at half, logged epochs of few digits are off by as much.
TOLERANCE = 0.1
MIN_PIECE = 256
"""Tokens of the shortest pieces that packing is used to make"""


class EpochLengthDiffersFromRows(LogRule):
    code = "LOG020"
    fault = Fault.ROWS_MISSING_FROM_TRAINING
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet where the data, the batch size or the epoch are not known, or rows are packed."""
        log = self.subject
        if log.data is None:
            return Unmet("the data of the run are not named", "name them with --data and -t")
        if not self._rows_per_device_batch():
            return Unmet(
                "the log names no batch size",
                "name the run's folder with its settings, or W&B's files",
            )
        if log.epochs_at_end <= 0:
            return Unmet("the log has no epoch", "log the epoch, as transformers does")
        return Unmet("packing makes other rows of the data") if log.facts.get("packing") else None

    def measurement_if_clean(self) -> str:
        """The rows that an epoch saw at least, beside those of the data."""
        data = self.subject.data
        assert data is not None
        return (
            f"an epoch saw about {math.floor(self._rows_per_epoch()):,} rows at least, the data have"
            f" {data.rows:,}"
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        if log.data is None or self.unmet() is not None:
            return
        accumulation, devices = (
            log.fact_as_number("gradient_accumulation_steps"),
            log.fact_as_number("devices"),
        )
        is_known = accumulation is not None and devices is not None
        per_epoch, a_step, seen = (
            self._steps_per_epoch(),
            self._rows_per_step(),
            self._rows_per_epoch(),
        )
        # splitting makes several examples of a row, so either count may be what an epoch is
        fewest, most = sorted((log.data.rows, log.data.examples))
        over = seen > (1 + TOLERANCE) * most + a_step
        # factors that are not known can only make it more rows
        under = is_known and seen < (1 - TOLERANCE) * fewest - a_step
        tokens = self._tokens_per_epoch()
        if not under and (not over or tokens <= (1 + TOLERANCE) * log.data.supervised):
            return
        is_sure = under or log.facts.get("packing") is False or tokens < MIN_PIECE * seen
        yield self.finding(
            f"an epoch of the run saw about {math.floor(seen):,} rows, but the data have {most:,}",
            "check that the run read these files: compare the number of rows that the trainer prints when it starts"
            " (Num examples), and delete caches of prepared data; if it saw more rows than there are, check that each"
            " process gets its own share",
            severity="warning" if is_sure else "info",
            evidence=(
                f"{per_epoch:,.1f} steps per epoch, {a_step:,.0f} rows per step"
                + ("" if is_known else " at least (accumulation and processes are not known)"),
            ),
        )

    def _rows_per_device_batch(self) -> float:
        """Rows of a batch on one device; 0 where it is not known."""
        log = self.subject
        return (
            log.fact_as_number("per_device_train_batch_size")
            or log.fact_as_number("train_batch_size")
            or 0.0
        )

    def _rows_per_step(self) -> float:
        """Rows of an optimizer step, as far as accumulation and devices are known."""
        log = self.subject
        return (
            self._rows_per_device_batch()
            * (log.fact_as_number("gradient_accumulation_steps") or 1)
            * (log.fact_as_number("devices") or 1)
        )

    def _tokens_per_epoch(self) -> float:
        """Tokens of an epoch; infinite where the log counts none, so that nothing speaks for
        packing.
        """
        tokens = self.subject.curve("num_tokens").finite()
        if not tokens:
            return math.inf
        return float(tokens.value[-1] / self.subject.epoch_at(tokens.step[-1]))

    def _steps_per_epoch(self) -> float:
        """Steps of one epoch, by the last record; 0 where no epoch was made."""
        epoch = self.subject.curve("epoch").finite()
        return float(epoch.step[-1] / epoch.value[-1]) if epoch.value[-1] else 0.0

    def _rows_per_epoch(self) -> float:
        """Rows that an epoch saw, at least: steps times rows of a step."""
        return self._steps_per_epoch() * self._rows_per_step()
