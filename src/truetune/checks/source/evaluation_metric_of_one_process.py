"""An evaluation score comes from one process only, which evaluates only its share of the rows.

## What it does
Looks at evaluations in scripts that run as several processes, one per GPU, and split their rows among them
(`DistributedSampler`, `accelerator.prepare`). It reports loops without gradients that add up a score which rank 0 logs,
if nothing in the files sums or gathers it over the processes. It is a warning, or info if nothing shows that several
processes are started. In a LightningModule it looks at `self.log` and `self.log_dict` of a validation without
`sync_dist=True`, if the Trainer has several devices: a warning if a ModelCheckpoint or EarlyStopping uses the name,
else info. Scores of torchmetrics, which are reduced automatically, are not reported.

## Why it is bad
On 8 GPUs the score covers an eighth of the rows, and its standard error is almost three times as large. It differs from
the score of the same checkpoint on one GPU, and the best checkpoint is chosen by it.

## Example
```python
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
val_loader = DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows, shuffle=False))

@torch.no_grad()
def evaluate():
    total = 0.0
    for batch in val_loader:
        total += model(**batch).loss.item()
    return total / len(val_loader)

loss = evaluate()
if dist.get_rank() == 0:
    print(loss)
```

## Use instead
```python
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
val_loader = DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows, shuffle=False))

@torch.no_grad()
def evaluate():
    total = torch.zeros(2, device="cuda")
    for batch in val_loader:
        total += torch.stack([model(**batch).loss, torch.ones((), device="cuda")])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()

loss = evaluate()
if dist.get_rank() == 0:
    print(loss)
```

## Fix safety
There is no automatic fix. Every process has to make the collective call. Scores change, and can't be compared with
earlier ones.

## References
- https://lightning.ai/docs/pytorch/stable/accelerators/accelerator_prepare.html#synchronize-validation-and-test-logging
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.evaluation_figures_not_gathered_over_processes import (
    LoggedFigure,
    PartialEvaluation,
    lightning_metrics_logged_without_reduction,
    loops_evaluating_part_of_rows,
    validation_log_calls,
)
from truetune.checks.source.evidence.several_process_scripts import sign_of_several_processes
from truetune.source.parsed_source_file import Module


def _logged_figures_of_several_processes(module: Module) -> Iterator[ast.AST]:
    """The places that log figures of evaluations which run as several processes."""
    yield from (one.loop for one in loops_evaluating_part_of_rows(module))
    yield from (call.node for call in validation_log_calls(module))


class EvaluationMetricOfOneProcess(SourceRule):
    code = "SRC409"
    fault = Fault.ROWS_OF_PROCESSES_MISCOUNTED
    severity = "warning"
    looks_at = CodePlaces(
        "figures of evaluations by several processes", _logged_figures_of_several_processes
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        several = sign_of_several_processes(module)
        is_certain = several is not None and several.is_certain
        for evaluation in loops_evaluating_part_of_rows(module):
            if evaluation.logged is not None:
                yield self._finding_on_loop(evaluation, evaluation.logged, is_certain=is_certain)
        for figure in lightning_metrics_logged_without_reduction(module):
            yield self._finding_on_lightning(figure)

    def _finding_on_loop(
        self, evaluation: PartialEvaluation, logged: ast.AST, *, is_certain: bool
    ) -> Finding:
        """The finding on a loop over the rows of this process, whose figure rank 0 logs."""
        module = self.subject
        return self.finding(
            "each process evaluates its own share of the rows, and rank 0 logs only its own score: nothing sums it"
            " over the"
            " processes",
            "on each process add up the score and the number of rows, all_reduce both sums (accelerate:"
            " gather_for_metrics),"
            " and divide afterwards",
            severity="warning" if is_certain else "info",
            cases=[
                case_of_node(module, evaluation.loop),
                case_of_node(module, evaluation.dealt),
                case_of_node(module, logged),
            ],
        )

    def _finding_on_lightning(self, figure: LoggedFigure) -> Finding:
        """The finding on a figure that Lightning logs of each process by itself."""
        module = self.subject
        chooses = figure.chooser is not None
        return self.finding(
            f"`{figure.name}` is logged without sync_dist, so it covers only the rows of one process, and the Trainer"
            f" starts several ({figure.several})"
            + (": a callback decides by it" if chooses else ""),
            "add sync_dist=True to this call, or log a metric of torchmetrics",
            severity="warning" if chooses else "info",
            cases=[
                case_of_node(module, figure.call.node),
                *(case_of_node(module, one) for one in (figure.chooser,) if one is not None),
            ],
        )
