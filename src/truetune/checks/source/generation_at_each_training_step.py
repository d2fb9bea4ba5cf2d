"""Sample answers are generated at every training step.

## What it does
Follows each `generate` to the hook of a callback (`on_step_end`, `on_train_batch_end`), or to a function that the
training loop calls and whose result nobody uses. It fires if no condition is around it, apart from one on the rank. Not
reported: generation every hundred steps, after an epoch or an evaluation, and functions that keep or return what they
generate, since that may be trained on, as in reinforcement learning.

## Why it is bad
Each token of an answer is a forward pass: an answer of 200 tokens takes as long as dozens of training steps. The run
takes several times as long, other processes wait at the next step, and nobody reads that many answers.

## Example
```python
from transformers import TrainerCallback

class ShowAnswers(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        model.eval()
        out = model.generate(**self.prompts, max_new_tokens=200)
        print(self.tokenizer.batch_decode(out))
        model.train()
```

## Use instead
```python
from transformers import TrainerCallback

class ShowAnswers(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % 200 == 0:
            model.eval()
            out = model.generate(**self.prompts, max_new_tokens=200)
            print(self.tokenizer.batch_decode(out))
            model.train()
```

## Fix safety
The training itself does not change. Sampling uses random numbers, so the order of the rows may differ from that of the
slow run.

## References
- transformers documentation, "Callbacks"; truetune, docs/guides/slow-training.md
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.code_run_in_every_training_step import (
    Function,
    loop_or_hook_of_each_step,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

KEEPING_METHODS = frozenset(("append", "extend", "add", "put", "push", "update", "store"))
"""Methods that keep what is generated, as a buffer of rollouts does"""


class GenerationAtEachTrainingStep(SourceRule):
    code = "SRC398"
    fault = Fault.EVALUATION_TAKES_TRAINING_TIME
    symptoms = ("slow-training",)
    severity = "warning"
    stability = "preview"
    looks_at = CodePlaces("calls of generate", lambda module: module.methods("generate"))

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.methods("generate"):
            place = _hook_or_loop_showing_answers(module, call)
            if place is None:
                continue
            yield self.finding(
                "answers are generated at each training step: each of their tokens is a separate forward pass,"
                " which takes"
                " most of the run's time",
                "generate every few hundred steps (`if step % 200 == 0:`, in a callback `if state.global_step % 200"
                " == 0:`),"
                " or once per epoch",
                cases=[case_of_node(module, call.node), case_of_node(module, place)],
            )
            return


def _hook_or_loop_showing_answers(module: Module, call: Call) -> ast.AST | None:
    """The hook or the loop that generates in each step, where the answers are not taken into the training."""
    function = module.function_around(call.node)
    if function is None or _may_keep_answers(function):
        return None
    place = loop_or_hook_of_each_step(module, call.node)
    # A hook gives the trainer nothing but its control back.
    if place is function or place is None:
        return place
    # With the loop itself in the function (`main`), the loss beside it may take the answers.
    if function in module.parents(place):
        return None
    calls = module.flow.calls_of_function_or_class(function)
    return place if all(_is_statement_of_its_own(module, one) for one in calls) else None


def _may_keep_answers(function: Function) -> bool:
    """May a function keep what it generates: by an attribute, an item or a list?"""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(one, ast.Attribute | ast.Subscript) for one in targets):
                return True
        if isinstance(node, ast.Attribute) and node.attr in KEEPING_METHODS:
            return True
    return False


def _is_statement_of_its_own(module: Module, call: ast.AST) -> bool:
    """Is a call a statement of its own, so that nobody takes what it gives back?"""
    return isinstance(next(iter(module.parents(call)), None), ast.Expr)
