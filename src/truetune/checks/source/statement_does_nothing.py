"""A statement that looks like a training step does nothing: a method is not called, or an attribute has no effect.

## What it does
Finds methods that are named but not called (`optimizer.zero_grad`), attributes that are misspelled by one letter
(`param.require_grad = False`, `tokenizer.pading_side = "left"`), and `requires_grad` set on a module, such as
`model.lm_head.requires_grad = False`. An attribute that the file reads is not reported.

## Why it is bad
Python accepts each of them silently. Layers that should stay frozen are trained, gradients are never cleared, or the
model is evaluated with dropout.

## Example
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
for name, param in model.named_parameters():
    if "layers.23" not in name:
        param.require_grad = False
```

## Use instead
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
for name, param in model.named_parameters():
    if "layers.23" not in name:
        param.requires_grad = False
```

## Fix safety
There is no automatic fix. The run changes: what was only meant to be frozen was trained so far, and a run that works
that way may be what you want.

## References
- udacity/deep-learning-v2-pytorch#12, SvenBecker/vscode-pytorch#8, catalyst-team/catalyst#81
- https://docs.pytorch.org/docs/stable/notes/autograd.html#setting-requires-grad
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.statements_without_effect import (
    attribute_assignments_not_on_self,
    statements_without_effect,
)
from truetune.source.parsed_source_file import Module

MESSAGES = {
    "call": "{written} is named but not called: the line does nothing",
    "name": "{written} is a misspelling of {meant}: nothing reads this attribute, so the line does nothing",
    "module": "{written} is set on a module, but only its parameters use it: the line freezes or unfreezes nothing",
}
"""The kind of a statement -> what is said of it"""


def _statements_that_may_do_nothing(module: Module) -> Iterator[object]:
    """What may do nothing: attributes that are set, and lines that are no call."""
    yield from attribute_assignments_not_on_self(module)
    yield from statements_without_effect(module)


class StatementDoesNothing(SourceRule):
    code = "SRC464"
    fault = Fault.CODE_WITHOUT_EFFECT
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("attributes of objects that are set", _statements_that_may_do_nothing)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for statement_without_effect in statements_without_effect(module):
            message = MESSAGES[statement_without_effect.kind].format(
                written=statement_without_effect.written, meant=statement_without_effect.meant
            )
            yield self.finding(
                message,
                f"write {statement_without_effect.meant}",
                cases=[case_of_node(module, statement_without_effect.statement)],
            )
