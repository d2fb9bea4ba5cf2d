"""One process skips a batch because of its own data, and the others wait for it in the backward pass.

## What it does
Looks at training loops and functions that run as several processes, one per GPU (DistributedDataParallel, FSDP,
DeepSpeed, accelerate, Fabric), each on its own rows. It looks for a `continue` or `return` before the backward pass
whose condition is computed from the batch or its loss (no label, NaN, too long), and for an `except` around the step
after which the loop continues (out of memory on one GPU). It is an error if a command starts several processes or the
script joins a process group, else a warning. Nothing is reported if the processes agree first (all_reduce).

## Why it is bad
The backward pass averages gradients over all processes, and the one that skips makes one pass fewer. From then on the
processes are out of step: at the end of the epoch one gathers the evaluation while the others average gradients, and
NCCL's watchdog ends the run after ten minutes. It never happens on one GPU.

## Example
```python
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    if (batch["labels"] != -100).sum() == 0:
        continue
    loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
accelerator.wait_for_everyone()
```

## Use instead
```python
import torch
from accelerate import Accelerator

accelerator = Accelerator()
rows = [row for row in rows if any(label != -100 for label in row["labels"])]
model, optimizer, loader = accelerator.prepare(model, optimizer, make_loader(rows))
for batch in loader:
    loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
accelerator.wait_for_everyone()
```

## Fix safety
There is no automatic fix. Rows that are removed before the loader change the number of steps. If the loss itself is not
finite, all processes have to skip: all_reduce the decision first. To make an empty batch count nothing, use a loss of
`logits.sum() * 0`, which still takes part in the backward pass.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html (all processes must make
  the same number of passes; `join`)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.batches_skipped_by_one_process import (
    BACKWARD,
    SkippedBatch,
    skipped_batches,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.loop_exits_by_one_process import loop_exits_by_one_process
from truetune.checks.source.evidence.process_counts import (
    is_kept_from_several_processes,
    refuses_several_processes,
)
from truetune.checks.source.evidence.several_process_scripts import sign_of_several_processes
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module


def _backward_passes_of_several_processes(module: Module) -> Iterator[Call]:
    """The backward passes of a script that runs as several processes."""
    if sign_of_several_processes(module) is not None:
        yield from module.methods(*BACKWARD)


class BatchSkippedOnOneRank(SourceRule):
    code = "SRC225"
    fault = Fault.PROCESSES_WAIT_FOR_EACH_OTHER
    symptoms = ("several-gpus",)
    severity = "error"
    looks_at = CodePlaces(
        "backward passes of several processes", _backward_passes_of_several_processes
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on batches that one process skips by its own figures while the others wait for it."""
        module = self.subject
        several = sign_of_several_processes(module)
        if several is None or refuses_several_processes(module):
            return
        # What collective-call-on-one-rank says of the same place is not said again.
        known = {left.node for left in loop_exits_by_one_process(module)}
        for skipped in skipped_batches(module):
            if skipped.node in known or is_kept_from_several_processes(module, skipped.node):
                continue
            waiting = f"{module.text_of(skipped.then)[:60]} in line {module.place(skipped.then)[0]}"
            yield self.finding(
                f"one process skips a batch because of its own rows, and the others wait for it in {waiting}",
                _skip_remedy(skipped),
                severity="error" if several.is_certain else "warning",
                evidence=[_skip_reason(module, skipped), several.how],
                cases=[case_of_node(module, skipped.node), case_of_node(module, skipped.then)],
            )


def _skip_reason(module: Module, skipped: SkippedBatch) -> str:
    """Why the process skips the batch, in words, as the code says it."""
    if skipped.why is None:
        return "an exception that only one process meets is caught, and its loop continues with the next batch"
    return f"the condition in line {module.place(skipped.why)[0]}: {module.text_of(skipped.why)}"


def _skip_remedy(skipped: SkippedBatch) -> str:
    """What to write instead of the skip."""
    if skipped.why is None:
        return (
            "let the exception end the run, and remove its cause (a smaller batch, a limit on the length of rows):"
            " one process can't skip a step without the others"
        )
    return (
        "remove such rows before the loader is built; or let all processes decide alike: all_reduce (MAX) the"
        " condition, and skip on all of them if it is true on any"
    )
