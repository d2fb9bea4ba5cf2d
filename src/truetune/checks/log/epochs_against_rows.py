"""An epoch of the run is not as long as the data are.

## What it does
With the data given (`--data`), compares the rows that one epoch saw (steps an epoch, times batch size, accumulation
and processes where the settings or the log name them) with the rows in the files. Where accumulation and processes
are not known, it only fires when an epoch saw more rows than there are. Packed runs are left alone, and runs that saw
more rows but no more tokens (`num_tokens`) than the data have: packing cuts long rows in pieces. Where the log does not
tell whether it packed, a surplus is a note, unless the rows it saw are shorter than any piece (256 tokens).

## Why it is bad
The run was on other data: an old cache, a file that was cut, rows dropped on the way, or every process read the same
rows.

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
Delete the cache of prepared data; count the rows that the trainer reports at its start.

## References
- huggingface/datasets#5360, huggingface/datasets#5961, huggingface/trl#6351
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import LogRule

NEAR = 0.1
PIECE = 256
"""Tokens of the shortest pieces that packing is used to make"""


class EpochsAgainstRows(LogRule):
    code = "TT818"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        batch = log.number("per_device_train_batch_size") or log.number("train_batch_size")
        if log.data is None or not batch or log.epochs <= 0 or log.facts.get("packing"):
            return
        epoch = log.curve("epoch").finite()
        per_epoch = float(epoch.step[-1] / epoch.value[-1]) if epoch.value[-1] else 0.0
        accumulation, devices = log.number("gradient_accumulation_steps"), log.number("devices")
        known = accumulation is not None and devices is not None
        a_step = batch * (accumulation or 1) * (devices or 1)
        counts = sorted({log.data.rows, log.data.examples})
        seen = per_epoch * a_step
        over = seen > (1 + NEAR) * counts[-1] + a_step
        under = known and seen < (1 - NEAR) * counts[0] - a_step
        tokens = log.curve("num_tokens").finite()
        a_epoch = float(tokens.value[-1] / log.epoch_at(tokens.step[-1])) if tokens else math.inf
        if not under and (not over or a_epoch <= (1 + NEAR) * log.data.supervised):
            return
        whole = under or log.facts.get("packing") is False or a_epoch < PIECE * seen
        yield self.finding(
            f"an epoch of the run saw about {math.floor(seen):,} rows, the data have {counts[-1]:,}",
            "see that the run read these files: delete caches, and count the rows that the trainer reports",
            severity="warning" if whole else "info",
            evidence=(
                f"{per_epoch:,.1f} steps an epoch, {a_step:,.0f} rows a step"
                + ("" if known else " at least (accumulation and processes are not known)"),
            ),
        )
