"""compute_metrics compares a causal model's predictions with labels of the same position.

## What it does
Looks at the function given as `compute_metrics` to a trainer of a causal model: does it take `argmax` of the logits and
compare with the labels, without a shift by one in it or in `preprocess_logits_for_metrics`?

## Why it is bad
The logits at a position predict the next token. Unshifted, a model that knows a text by heart scores 0.17 and not 1.0.

## Example
```python
from transformers import AutoModelForCausalLM, Trainer


def compute_metrics(pred):
    logits, labels = pred
    predictions = logits.argmax(-1)
    return {"accuracy": (predictions == labels)[labels != -100].mean()}


model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, compute_metrics=compute_metrics)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, Trainer


def compute_metrics(pred):
    logits, labels = pred
    predictions, labels = logits.argmax(-1)[:, :-1], labels[:, 1:]
    return {"accuracy": (predictions == labels)[labels != -100].mean()}


model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, compute_metrics=compute_metrics)
```

## Fix safety
The shift changes the figure, and nothing else.

## References
- huggingface/transformers#26474, huggingface/trl#862, unslothai/unsloth#2257, hiyouga/LLaMA-Factory#2040
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at
from truetune.source.calls import Call
from truetune.source.module import Module

CAUSAL = ("transformers.AutoModelForCausalLM.*", "transformers.*ForCausalLM*", "unsloth.Fast*Model.from_pretrained")


class MetricsUnshifted(SourceRule):
    code = "TT742"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if not any(call.named(*CAUSAL) for call in module.all_calls):
            return
        for call in module.calls("transformers.Trainer", "trl.SFTTrainer"):
            given = call.keywords.get("compute_metrics")
            function = module.flow.function(given) if given is not None else None
            if function is None or _shifts(module, call):
                continue
            compared = next((node for node in ast.walk(function) if _compares(node)), None)
            reduce = call.keywords.get("preprocess_logits_for_metrics")
            seen = [function, module.flow.function(reduce) if reduce is not None else None]
            if compared is not None and any(_picks(node) for one in seen if one for node in ast.walk(one)):
                yield self.finding(
                    "compute_metrics compares predictions with the labels of their own position, not of the next",
                    "compare predictions[:, :-1] with labels[:, 1:]",
                    cases=[at(module, compared)],
                )


def _shifts(module: Module, call: Call) -> bool:
    """Is there a slice `1:` or `:-1` in one of the functions that see the logits?"""
    for name in ("compute_metrics", "preprocess_logits_for_metrics"):
        given = call.keywords.get(name)
        function = module.flow.function(given) if given is not None else None
        if given is not None and function is None:
            return True
        for node in ast.walk(function) if function is not None else ():
            if isinstance(node, ast.Slice) and (_is(node.lower, 1) or _is(node.upper, -1)):
                return True
    return False


def _is(node: ast.expr | None, number: int) -> bool:
    return node is not None and ast.unparse(node) == str(number)


def _compares(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq) and "label" in ast.unparse(node).lower()


def _picks(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("argmax")
