"""A model is evaluated or generated from while it is in training mode.

## What it does
Looks for a file that calls `model.train()`, later generates with the model or runs it under `no_grad`, and never calls
`eval()`.

## Why it is bad
Dropout stays on: answers and evaluation losses are noisy and too bad, and a reference model's log-probabilities differ
from pass to pass.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
model.train()
out = model.generate(**tokenizer("Hi", return_tensors="pt"), max_new_tokens=20)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
model.train()
model.eval()
out = model.generate(**tokenizer("Hi", return_tensors="pt"), max_new_tokens=20)
```

## Fix safety
Safe, with `model.train()` before training goes on.

## References
- huggingface/trl#744, huggingface/trl#2042, eric-mitchell/direct-preference-optimization#34
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

NO_GRADIENT = ("torch.no_grad", "torch.inference_mode")


def _mode_switches(module: Module) -> Iterator[Call]:
    """Calls of `model.train()`."""
    return (call for call in module.methods("train") if _is_model(module, call))


class ModelLeftInTrainingMode(SourceRule):
    code = "SRC053"
    severity = "warning"
    since = "0.1.0"
    looks_at = CodePlaces("models that are switched to training", _mode_switches)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(any(part.methods("eval")) for part in module.with_linked):
            return
        # `model.train(flag)` switches by a value that only the run knows.
        if any(call.args or call.keywords for call in module.methods("train")):
            return
        switched = next(_mode_switches(module), None)
        if switched is None:
            return
        line = switched.node.lineno
        used = next(
            (
                call
                for call in module.all_calls
                # By line: a file of one flow is judged, and a function that is called later is missed rather than
                # told wrongly.
                if call.node.lineno > line
                and _is_evaluation(module, call)
                and _model_source(module, call) & _model_source(module, switched)
            ),
            None,
        )
        if used is not None:
            yield self.finding(
                "the model is used for evaluation in training mode: dropout is on",
                "call model.eval() before, and model.train() after",
                cases=[case_at(module, used.node), case_at(module, switched.node)],
            )


def _is_model(module: Module, call: Call) -> bool:
    """Is the receiver a model, and the call without a mode?"""
    return (
        call.receiver is not None and "model" in module.flow.types(call.receiver) and not call.args
    )


def _model_source(module: Module, call: Call) -> set[ast.AST]:
    """What made the model that is called, or whose method is."""
    model = call.receiver if call.method in ("train", "generate") else call.node.func
    return {origin.node for origin in module.flow.origins(model)} if model is not None else set()


def _is_evaluation(module: Module, call: Call) -> bool:
    """Does a call generate, or run a model without gradients?"""
    if call.method == "generate" and call.receiver is not None:
        return "model" in module.flow.types(call.receiver)
    return "model" in module.flow.types(call.node.func) and any(
        isinstance(node, ast.With)
        and any(_is_no_gradient(module, item.context_expr) for item in node.items)
        for node in module.parents(call.node)
    )


def _is_no_gradient(module: Module, node: ast.expr) -> bool:
    """Is it a context in which no gradient is recorded?"""
    return isinstance(node, ast.Call) and module.flow.name(node.func) in NO_GRADIENT
