"""`model.state_dict` is replaced, as in an outdated recipe, and the adapter is filtered twice.

## What it does
Finds an assignment to the attribute `state_dict` of a model.

## Why it is bad
peft filters the adapter's weights when it saves. With the releases of 2023 the second filter left nothing: a file of
443 bytes, and the loaded model answered like the base. Current releases raise an error on saving if `modules_to_save`
is set, and no state can be loaded again.

## Example
```python
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import AutoModelForCausalLM

model = get_peft_model(AutoModelForCausalLM.from_pretrained("some/model"), LoraConfig())
old_state_dict = model.state_dict
model.state_dict = (lambda self, *_, **__: get_peft_model_state_dict(self, old_state_dict())).__get__(
    model, type(model)
)
model.save_pretrained("adapter")
```

## Use instead
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = get_peft_model(AutoModelForCausalLM.from_pretrained("some/model"), LoraConfig())
model.save_pretrained("adapter")
```

## Fix safety
Safe: the fix removes the assignment. `save_pretrained` of a peft model writes only the adapter anyway.

## References
- tloen/alpaca-lora#293, tloen/alpaca-lora#334, artidoro/qlora#44, huggingface/transformers#24551
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.source.make_source_edits import delete_statement
from truetune.source.parsed_source_file import Module


def _assigned_state_dicts(module: Module) -> Iterator[ast.Assign]:
    """Assignments to `x.state_dict`."""
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "state_dict":
            yield node


class StateDictMethodReplaced(SourceRule):
    code = "SRC019"
    fault = Fault.WEIGHT_NAMES_DO_NOT_MATCH
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces("assignments to state_dict", _assigned_state_dicts)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for node in _assigned_state_dicts(module):
            if _calls_get_peft_model_state_dict(module, node.value):
                yield self.finding(
                    "state_dict is replaced by one that filters the adapter, and peft filters again"
                    " when it saves: the saved adapter can be empty",
                    "delete the assignment; save_pretrained of a peft model saves only the adapter anyway",
                    cases=[case_of_node(module, node)],
                    fix=fix_of_changes(module, delete_statement(module, node)),
                )


def _calls_get_peft_model_state_dict(module: Module, value: ast.expr) -> bool:
    """Does it call `get_peft_model_state_dict`, itself or in a function of the file?"""
    function = module.flow.function_that_expression_names(value)
    # A lambda's body stands in the value, a named function elsewhere in the file.
    inside = [*ast.walk(value), *(ast.walk(function) if function is not None else ())]
    names = {module.flow.name(n.func) for n in inside if isinstance(n, ast.Call)}
    return "peft.get_peft_model_state_dict" in names
