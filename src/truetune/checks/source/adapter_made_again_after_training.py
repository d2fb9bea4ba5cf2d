"""The code that makes the adapter ran again after the training, and the new, untrained adapter is used.

## What it does
Reads the order in which the cells of a notebook last ran: from their execution counts, or from comments like `# In[4]:`
in a script that was exported from a notebook. It fires if a cell with `get_peft_model` ran after the last
`trainer.train()`, and a later cell saves the model of that name or generates with it. Notebooks that load weights
afterwards, or whose counts were cleared, are not reported. In a script it fires if the code that put the adapter on the
trained model runs once more after the training (a function that builds the model is called again), and its result is
saved or used to generate.

## Why it is bad
A new adapter starts at zero, so the model that is saved, or generates, is the base model. Nothing fails, but the
training is lost unless the trainer object still exists.

## Example
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from trl import SFTTrainer

base = AutoModelForCausalLM.from_pretrained("org/base")
# In[4]:
model = get_peft_model(base, LoraConfig())
# In[2]:
trainer = SFTTrainer(model=model, train_dataset=rows)
# In[3]:
trainer.train()
# In[5]:
model.save_pretrained("lora")
```

## Use instead
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from trl import SFTTrainer

base = AutoModelForCausalLM.from_pretrained("org/base")
# In[1]:
model = get_peft_model(base, LoraConfig())
# In[2]:
trainer = SFTTrainer(model=model, train_dataset=rows)
# In[3]:
trainer.train()
# In[4]:
model.save_pretrained("lora")
```

## Fix safety
There is no automatic fix: the order in which cells ran is not part of the code.

## References
- Jupyter documentation, the notebook format: `execution_count`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.trained_adapters_replaced_before_use import (
    LOADS,
    TRAINERS,
    USES,
    WRAPS,
    new_adapters_used,
    trainer_train_calls,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)

MARK_OF_EXPORT = re.compile(r"# In ?\[(\d{1,9}| *)\]:?\s*$")


def _adapter_calls_and_uses(module: Module) -> Iterator[object]:
    """The calls that make an adapter in cells, and those that save a model or generate with it in a
    run that trains.
    """
    yield from _adapter_calls_with_known_order(module)
    for trace in traces_of_scripts_that_reach_file(module):
        if any(trainer_train_calls(trace)):
            yield from (one for one in trace.methods(*USES) if one.home.path == module.path)


def _adapter_calls_with_known_order(module: Module) -> Iterator[Call]:
    """The calls that make an adapter, or of a function that does, in a cell of which it is known when it ran."""
    for call in module.all_calls:
        maker = call if call.named(*WRAPS) else module.flow.producing_call(call.node)
        if (
            maker is not None
            and maker.named(*WRAPS)
            and _cell_run_number(module, call.node) is not None
        ):
            yield call


def _cell_run_number(module: Module, node: ast.AST) -> int | None:
    """The number in brackets of a node's cell; None where that is not known."""
    line = getattr(node, "lineno", 0)
    if module.cells:
        return next((cell.run_count for cell in module.cells if cell.has_line(line)), None)
    marks = [mark for mark in _cell_marks_of_nbconvert_script(module) if mark[0] <= line]
    return marks[-1][1] if marks else None


def _cell_marks_of_nbconvert_script(module: Module) -> list[tuple[int, int | None]]:
    """The lines `# In[4]:` of a script that nbconvert made of a notebook, with their numbers; `# In[ ]:` has none."""
    marks = []
    for number, line in enumerate(module.text.splitlines(), 1):
        match = MARK_OF_EXPORT.match(line)
        if match is not None:
            marks.append((number, int(match[1]) if match[1].strip() else None))
    return marks


class AdapterMadeAgainAfterTraining(SourceRule):
    code = "SRC291"
    fault = Fault.ADAPTER_ON_MODEL_THAT_HAS_IT
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = CodePlaces(
        "cells that make an adapter and have run, and models that are used after a training",
        _adapter_calls_and_uses,
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on code that makes the adapter and ran again after the training, so that an
        untrained one is saved or asked.
        """
        yield from self._findings_on_cell_order()
        for use in new_adapters_used(self.subject):
            yield self.finding(
                f"{use.call.method} uses a model that was built again after the training: its adapter is new and"
                " untrained",
                "use the model that was trained: save it with trainer.save_model(FOLDER), or return it from the"
                " function that trains",
                cases=[
                    case_of_node(self.subject, one)
                    for one in (use.call.node, use.wrap.node, use.training.node)
                ],
            )

    def _findings_on_cell_order(self) -> Iterator[Finding]:
        """Findings on the order in which the cells of a notebook ran."""
        module = self.subject
        training = _last_training(module)
        if training is None:
            return
        for wrap in _adapter_calls_with_known_order(module):
            wrapped = _cell_run_number(module, wrap.node) or 0
            name = _name_of_result(module, wrap.node)
            is_later = bool(name) and wrapped > training.run_count
            used = _first_save_or_generation_after_wrap(module, name, wrapped) if is_later else None
            if used is None or _may_load_weights_after(module, wrapped):
                continue
            yield self.finding(
                f"the cell that creates the adapter ran again as [{wrapped}], after the training"
                f" [{training.run_count}]: {name} has a new, untrained adapter, and {used.method}"
                f" [{_cell_run_number(module, used.node)}] uses that one",
                "call save_pretrained right after the training, before this cell runs again; to rescue this run, call"
                " trainer.model.save_pretrained(FOLDER) if the kernel still runs, else load the last checkpoint",
                cases=[case_of_node(module, one) for one in (wrap.node, training.node, used.node)],
            )
            return


class LastTraining(NamedTuple):
    """The training that ran last."""

    run_count: int
    node: ast.Call


def _last_training(module: Module) -> LastTraining | None:
    """The training that ran last; None where there is none, or the order of one is not known."""
    trainings = list(_training_calls(module))
    counts = [_cell_run_number(module, call.node) for call in trainings]
    known = [count for count in counts if count is not None]
    if not known or len(known) < len(counts):
        return None
    last = max(known)
    return LastTraining(last, trainings[counts.index(last)].node)


def _training_calls(module: Module) -> Iterator[Call]:
    """The calls of a trainer's `train`."""
    for call in module.methods("train"):
        trainer = module.flow.producing_call(call.receiver)
        if trainer is not None and trainer.named(*TRAINERS):
            yield call


def _name_of_result(module: Module, node: ast.AST) -> str:
    """The name that the result of a call is bound to; empty where it is bound to none."""
    parent = module.scopes.parent.get(node)
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else ""


def _first_save_or_generation_after_wrap(module: Module, name: str, wrapped: int) -> Call | None:
    """The first call, in the order of the runs, that saves the model of a name or generates after it was wrapped."""
    found = [
        (count, call.node.lineno, call)
        for call in module.methods(*(f"{one}*" for one in USES))
        if isinstance(call.receiver, ast.Name)
        and call.receiver.id == name
        and (count := _cell_run_number(module, call.node)) is not None
        and count > wrapped
    ]
    return min(found, key=lambda one: one[:2])[2] if found else None


def _may_load_weights_after(module: Module, wrapped: int) -> bool:
    """Are weights loaded in a cell that ran later, or of which it is not known when it ran?"""
    loads = [
        *module.methods(*LOADS),
        *module.calls("peft.set_peft_model_state_dict", "peft.*.from_pretrained"),
    ]
    return any((_cell_run_number(module, call.node) or wrapped + 1) > wrapped for call in loads)
