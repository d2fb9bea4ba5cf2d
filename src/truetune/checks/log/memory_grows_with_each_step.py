"""GPU memory grows with each step.

## What it does
Reads what the log says about GPU memory (`allocated_bytes.all.current` of Lightning's DeviceStatsMonitor, `gpu_mem_gb`,
`memory(GiB)`). It fires if memory rises in a straight line by 1 GiB or more, in the second half of the run as in the
first. That is a warning for allocated memory, and info for peak memory, which also rises if rows come sorted by length.
If memory falls back at once and grows again, as with each epoch, each of these stretches is judged like that.

## Why it is bad
A step frees the memory that it used. What keeps growing is held by something: tensors in a list or a metric, losses
with their graphs. The run ends when the GPU is full, at a line that has nothing to do with it. A smaller batch only
delays that.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 1.5, steps: 90, noise: 0.01}
  gpu_memory_allocated_gb: {from: 8.0, to: 23.0, steps: 90, noise: 0.01}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.5, steps: 90, noise: 0.01}
  gpu_memory_allocated_gb: {from: 8.0, to: 8.1, steps: 90, noise: 0.01}
```

## Fix safety
Keeping a number (`.item()`), a count, or a copy on the CPU (`.detach().cpu()`) changes no result.

## References
- pytorch.org/docs/stable/notes/faq.html ("My model reports cuda runtime error(2)"), pytorch/pytorch#13613
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.gpu_memory_curve import (
    MIN_GROWTH_RECORDS,
    MemoryCurve,
    find_memory_curve,
    first_and_last_if_growing,
    growth_between_releases,
)


class MemoryGrowsWithEachStep(LogRule):
    code = "LOG165"
    fault = Fault.MEMORY_GROWS_IN_LOOP
    symptoms = ("out-of-memory",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet where the log has too few records of the GPU's memory."""
        records = int(find_memory_curve(self.subject.curves).curve.step.size)
        if records >= MIN_GROWTH_RECORDS:
            return None
        return Unmet(
            "the log has no memory of the GPU in six records or more",
            "log torch.cuda.memory_allocated() beside the loss",
        )

    def measurement_if_clean(self) -> str:
        """The memory at the first and at the last record, in GiB."""
        memory = find_memory_curve(self.subject.curves)
        return f"{memory.name}: {memory.curve.value[0]:.2f} to {memory.curve.value[-1]:.2f} GiB"

    def findings(self) -> Iterator[Finding]:
        memory = find_memory_curve(self.subject.curves)
        grown = first_and_last_if_growing(memory.curve)
        if grown is None:
            yield from self._findings_on_growth_in_stretches(memory)
            return
        steps = float(np.ptp(memory.curve.step))
        yield self.finding(
            f"GPU memory grows with each step: from {grown[0]:.2f} to {grown[1]:.2f} GiB over"
            f" {steps:,.0f} steps, {(grown[1] - grown[0]) / steps * 1024:,.3g} MiB per step ({memory.name})",
            "find what keeps tensors of each step: lists, metrics, callbacks, sums of losses"
            " (`truetune lint SCRIPT` names the line); keep loss.item() instead of loss, and logits.detach().cpu()",
            # A peak rises too where rows come sorted by their length.
            severity="warning" if memory.is_current else "info",
            figure=draw_curves("GiB", {memory.name: memory.curve}, {}),
        )

    def _findings_on_growth_in_stretches(self, memory: MemoryCurve) -> Iterator[Finding]:
        """The finding on memory that grows again and again, and is released between."""
        stretches = growth_between_releases(memory.curve)
        if not stretches:
            return
        first, last = stretches[-1]
        yield self.finding(
            f"GPU memory grows with each step from {first:.2f} to {last:.2f} GiB, and is released"
            f" {len(stretches) - 1:,} times, as at the end of an epoch ({memory.name}): a longer epoch, or more rows,"
            " fills the GPU",
            "find what keeps tensors of each step until the epoch ends: a list of losses or outputs, a metric, an"
            " evaluation without torch.no_grad() (`truetune lint SCRIPT` names the line); keep loss.item() instead of"
            " loss",
            severity="warning" if memory.is_current else "info",
            count=len(stretches),
            figure=draw_curves("GiB", {memory.name: memory.curve}, {}),
        )
