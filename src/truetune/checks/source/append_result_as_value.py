"""The result of `append`, which is None, is given to a setting.

## What it does
It finds `x=names.append(...)` (and `extend`, `insert`, `sort`, `update`) among the arguments of LoRA configs and
trainers.

## Why it is bad
These methods change their list and return None, so the setting has no value: the module is not saved, or not trained.

## Example
```python
from peft import LoraConfig

targets = ["q_proj", "v_proj"]
config = LoraConfig(target_modules=targets, modules_to_save=targets.append("score"))
```

## Use instead
```python
from peft import LoraConfig

targets = ["q_proj", "v_proj"]
config = LoraConfig(target_modules=targets, modules_to_save=["score"])
```

## Fix safety
There is no automatic fix: only you know what the list should contain.

## References
- huggingface/peft#577
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

IN_PLACE_METHODS = (
    "append",
    "extend",
    "insert",
    "sort",
    "reverse",
    "update",
    "add",
    "remove",
    "clear",
)


def _calls_of_configs_and_trainers(module: Module) -> Iterator[Call]:
    """Calls that make settings of LoRA or of a training, or a trainer."""
    return (
        call
        for call in module.all_calls
        if module.flow.types(call.node) & {"lora", "arguments", "trainer"}
    )


class AppendResultAsValue(SourceRule):
    code = "SRC018"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("garbage-output", "loss-does-not-fall")
    severity = "error"
    since = "0.1.0"
    looks_at = CodePlaces("settings and trainers that are made", _calls_of_configs_and_trainers)

    def findings(self) -> Iterator[Finding]:
        """Findings on settings that are given the result of `append` or the like, which is None."""
        module = self.subject
        for call in _calls_of_configs_and_trainers(module):
            for name, given in call.keywords.items():
                made = module.flow.producing_call(given)
                if (
                    made is not None
                    and made.method in IN_PLACE_METHODS
                    and made.receiver is not None
                ):
                    if module.flow.function_that_expression_names(made.node.func) is None:
                        yield self.finding(
                            f"{name} is set to the result of {made.method}(), which is None: the setting is lost",
                            f"give {name} the list itself; change the list on a line of its own before",
                            cases=[
                                case_of_node(module, made.node),
                                case_of_node(module, call.node),
                            ],
                        )
