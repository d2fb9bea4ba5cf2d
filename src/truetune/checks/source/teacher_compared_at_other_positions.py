"""A distillation compares the student's prediction of one token with the teacher's of another.

## What it does
Follows both sides of a Kullback-Leibler divergence back to the logits of student and teacher. It fires if one is cut
to all positions but the last (`[:, :-1]`) and the other to all but the first (`[:, 1:]`).

## Why it is bad
Logits at a position are the prediction of the next token, of the teacher as of the student. Only labels are shifted.
With one side shifted, the student learns at each place what comes one token later. The shapes fit, and the loss
falls.

## Example
```python
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")

for batch in batches:
    own = student(**batch).logits[:, :-1]
    with torch.no_grad():
        wanted = teacher(**batch).logits[:, 1:]
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

for batch in batches:
    own = student(**batch).logits[:, :-1]
    with torch.no_grad():
        wanted = teacher(**batch).logits[:, :-1]
    given, target = F.log_softmax(own, -1), F.softmax(wanted, -1)
    F.kl_div(given.flatten(0, 1), target.flatten(0, 1), reduction="batchmean").backward()
```

## Fix safety
Safe: cut both sides alike. A student that was trained with the shift has to be trained again.

## References
- DeepOpt-com/WrinkleFree-Monorepo#13, linkedin/fmchisel#23, modelscope/ms-swift#8436
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.distillation_losses import (
    Bounds,
    distillation_losses,
    divergences_of_file,
)

ALL_BUT_LAST: Bounds = (None, -1)
ALL_BUT_FIRST: Bounds = (1, None)


class TeacherComparedAtOtherPositions(SourceRule):
    code = "SRC585"
    fault = Fault.DISTILLATION_LEARNS_WRONG_TOKENS
    symptoms = ("loss-does-not-fall", "garbage-output")
    severity = "error"
    looks_at = CodePlaces("Kullback-Leibler divergences", divergences_of_file)

    def findings(self) -> Iterator[Finding]:
        """Findings on divergences whose sides are one token apart."""
        module = self.subject
        for loss in distillation_losses(module):
            positions = {loss.student.positions, loss.teacher.positions}
            if positions != {ALL_BUT_LAST, ALL_BUT_FIRST}:
                continue
            later = "teacher" if loss.teacher.positions == ALL_BUT_FIRST else "student"
            yield self.finding(
                f"the {later}'s logits begin at the second position and those of the other at the first: predictions of"
                " different tokens are compared",
                "cut both alike: logits[:, :-1] of student and teacher; only labels are shifted by [:, 1:]",
                cases=[
                    case_of_node(module, loss.call.node),
                    case_of_node(module, loss.teacher.forward.node),
                ],
            )
