"""The teacher of a distillation changes while it teaches: it has dropout, or shares weights with the student.

## What it does
Looks at the teacher while the trainer computes its loss: is it in training mode with dropout, and does it share trained
tensors with the student?

## Why it is bad
A teacher with dropout says something else each time, and the student learns the noise. One that shares its weights
agrees with the student always: the loss is 0 and nothing is learned.

## Example

```python
import trl.experimental.gkd as gkd

run = gkd.GKDTrainer(model, model, args=arguments(gkd.GKDConfig), processing_class=tokenizer,
                     train_dataset=datasets.Dataset.from_list(chats()))
```

## Use instead

```python
import trl.experimental.gkd as gkd

torch.manual_seed(1)  # weights of its own
teacher = transformers.LlamaForCausalLM(model.config)
run = gkd.GKDTrainer(model, teacher, args=arguments(gkd.GKDConfig), processing_class=tokenizer,
                     train_dataset=datasets.Dataset.from_list(chats()))
```

## Fix safety
There is no automatic fix. A teacher of its own takes the memory of a second model.

## References

- huggingface/trl#5990, vrvlive/knowlege-distillation#2
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class TeacherIsNoisyOrTrained(LawRule):
    code = "LAW035"
    fault = Fault.TEACHER_FOLLOWED_WRONGLY
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    law = "distillation"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the teacher is no fixed distribution."""
        shared, noisy = evidence.get("shared", 0), evidence.get("noisy", 0)
        if shared:
            yield self.finding(
                f"{shared} tensors of the teacher are trained with the student: they share their memory",
                "load the teacher as a model of its own, with from_pretrained or copy.deepcopy",
                count=shared,
            )
        elif noisy:
            yield self.finding(
                f"the teacher is in training mode with dropout in {noisy} of {evidence['calls']} passes",
                "call teacher_model.eval() in compute_loss, before the teacher's pass",
                count=noisy,
                total=evidence["calls"],
            )
