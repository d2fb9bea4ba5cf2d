"""The teacher of a distillation is put into training mode, so that dropout disturbs its predictions.

## What it does
Follows a script up to a Kullback-Leibler divergence between student and teacher. It fires if `train()` is the last
switch of the teacher before its pass: called on it, or where it is loaded.

## Why it is bad
With dropout, the teacher predicts something else each time, and never what it would predict in use. The student
learns the mean of these. A model without dropout is not changed by it, so the finding is a warning.

## Example
```python
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
teacher.train()
for batch in batches:
    own = student(**batch).logits
    with torch.no_grad():
        wanted = teacher(**batch).logits
    given, target = F.log_softmax(own, -1), F.softmax(wanted, -1)
    F.kl_div(given.flatten(0, 1), target.flatten(0, 1), reduction="batchmean").backward()
```

## Use instead
```python
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
teacher.eval()
for batch in batches:
    own = student(**batch).logits
    with torch.no_grad():
        wanted = teacher(**batch).logits
    given, target = F.log_softmax(own, -1), F.softmax(wanted, -1)
    F.kl_div(given.flatten(0, 1), target.flatten(0, 1), reduction="batchmean").backward()
```

## Fix safety
`teacher.eval()` is safe.

## References
- vrvlive/knowlege-distillation#2, haitongli/knowledge-distillation-pytorch#25
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.distillation_losses import (
    DistillationLoss,
    distillation_losses,
    divergences_of_file,
)
from truetune.checks.source.evidence.optimizers_before_adapters import single_model_lineage
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent


class TeacherInTrainingMode(SourceRule):
    code = "SRC584"
    fault = Fault.TEACHER_FOLLOWED_WRONGLY
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = CodePlaces("Kullback-Leibler divergences", divergences_of_file)

    def findings(self) -> Iterator[Finding]:
        """Findings on teachers that were switched to training mode last."""
        module = self.subject
        for loss in distillation_losses(module):
            switch = _last_switch_of_teacher(loss)
            if switch is None or not _switches_to_training(switch):
                continue
            yield self.finding(
                "the teacher is in training mode where it predicts: dropout disturbs what the student learns",
                "call teacher.eval() before the loop",
                cases=[
                    case_of_node(module, switch.node),
                    case_of_node(module, loss.teacher.forward.node),
                ],
            )


def _last_switch_of_teacher(loss: DistillationLoss) -> CallEvent | None:
    """The last call of `train` or `eval` on the teacher before its pass; None where there is none."""
    last = None
    if loss.teacher.load is None:
        return None
    for call in loss.trace.methods("train", "eval"):
        if call.number >= loss.teacher.forward.number:
            break
        lineage = single_model_lineage(call.receiver)
        if lineage is not None and lineage.call_that_gave_origin is loss.teacher.load:
            last = call
    return last


def _switches_to_training(call: CallEvent) -> bool:
    """Is it `train()`, and not `eval()` or `train(False)`?"""
    mode = call.argument(0, "mode")
    return call.method == "train" and (mode is None or constant_of(mode) is True)
