"""A distillation divides the logits of student and teacher by different temperatures.

## What it does
Follows both sides of a Kullback-Leibler divergence back to the logits, and compares the numbers that they are divided
by.

## Why it is bad
The divergence is smallest where the student's distribution at its temperature is the teacher's at its own. With a
higher one for the teacher alone, the student learns flat distributions: it is unsure of every token, and its samples
are worse.

## Example
```python
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")

for batch in batches:
    own = student(**batch).logits
    with torch.no_grad():
        wanted = teacher(**batch).logits
    given, target = F.log_softmax(own, -1), F.softmax(wanted / 2.0, -1)
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
    own = student(**batch).logits
    with torch.no_grad():
        wanted = teacher(**batch).logits
    given, target = F.log_softmax(own / 2.0, -1), F.softmax(wanted / 2.0, -1)
    loss = F.kl_div(given.flatten(0, 1), target.flatten(0, 1), reduction="batchmean")
    (loss * 2.0**2).backward()
```

## Fix safety
There is no automatic fix: a teacher that is sharpened on purpose (its temperature below 1) is a method of its own.

## References
- Hinton et al. 2015, arXiv 1503.02531, section 2: the same temperature for both, and a factor of its square
- verl-project/verl#5592 (the student's and the teacher's temperature)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.distillation_losses import (
    distillation_losses,
    divergences_of_file,
)


class TemperatureOnOneSideOfADistillation(SourceRule):
    code = "SRC586"
    fault = Fault.TEACHER_FOLLOWED_WRONGLY
    symptoms = ("garbage-output",)
    severity = "warning"
    looks_at = CodePlaces("Kullback-Leibler divergences", divergences_of_file)

    def findings(self) -> Iterator[Finding]:
        """Findings on divergences with two temperatures."""
        module = self.subject
        for loss in distillation_losses(module):
            own, wanted = loss.student.temperature, loss.teacher.temperature
            if own is None or wanted is None or own == wanted:
                continue
            yield self.finding(
                f"the student's logits are divided by {own:g} and the teacher's by {wanted:g}: the student learns a"
                f" {'flatter' if wanted > own else 'sharper'} distribution than the teacher's",
                "divide both by the same temperature, and multiply the divergence by its square",
                cases=[case_of_node(module, loss.call.node)],
            )
