"""An optimizer of Adam's kind gets a learning rate at which a pretrained model falls apart.

## What it does
Looks for an optimizer of PyTorch, bitsandbytes or transformers that divides by the size of the gradient (Adam, AdamW,
NAdam, RAdam, Lion, ...) over the parameters of a pretrained language model, at 0.1 or more. Prompt tuning, which uses
such rates, and optimizers of other models are left alone.

## Why it is bad
Adam moves each weight by about the learning rate at each step. Weights of language models are about 0.02: one step of
0.1 replaces them by noise, and the loss rises to where it stays.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2.0)
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
```

## Fix safety
There is no automatic fix. Usual are 1e-6 to 5e-5 for all weights, 1e-5 to 1e-3 for LoRA.

## References
- https://arxiv.org/abs/1412.6980 (the step is bounded by the learning rate)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at
from truetune.source.calls import Call
from truetune.source.module import Module

ADAMS = (
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adamax",
    "AMSGrad",
    "Lion",
    "AdamW8bit",
    "PagedAdamW",
    "PagedAdamW8bit",
    "Adam8bit",
    "AdamW32bit",
)
MAKERS = tuple(
    f"{home}.{name}" for home in ("torch.optim", "bitsandbytes", "transformers") for name in ADAMS
)
MOST = 0.1
"""Weights of published models have a standard deviation of 0.01 to 0.1; prompt tuning is done at up to 0.3"""
PROMPT_TUNING = ("PromptTuning", "PrefixTuning", "PromptEncoder", "soft_prompt", "prompt_embed")


def _adams(module: Module) -> Iterator[Call]:
    """Optimizers over the parameters of a model of transformers."""
    for call in module.calls(*MAKERS):
        params = call.argument(0, "params")
        if params is not None and _is_of_model(module, params):
            yield call


class LearningRateBeyondReason(SourceRule):
    code = "TT768"
    severity = "error"
    looks_at = CodePlaces("optimizers over a language model", _adams)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(word in module.text for word in PROMPT_TUNING):
            return
        for call in _adams(module):
            rate = module.flow.value(call.argument(1, "lr"))
            if isinstance(rate, int | float) and not isinstance(rate, bool) and rate >= MOST:
                yield self.finding(
                    f"the learning rate is {rate:g}: each step moves every weight by about so much",
                    "give lr=2e-5, or ten times as much for an adapter",
                    cases=[at(module, call.node)],
                )


def _is_of_model(module: Module, params: ast.expr) -> bool:
    """Are these the parameters of a model that was loaded, as such, filtered or in a list of groups?"""
    nodes = [params, *(origin.node for origin in module.flow.origins(params))]
    for node in (part for whole in nodes for part in ast.walk(whole)):
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters"):
            made = (origin.node for origin in module.flow.origins(node.value))
            if "model" in module.flow.kinds(node.value) and not any(
                _is_new(module, one) for one in made
            ):
                return True
    return False


def _is_new(module: Module, node: ast.AST) -> bool:
    """A model with random weights can take larger steps at first."""
    return isinstance(node, ast.Call) and module.flow.call(node).named(
        "*.from_config", "transformers.*For*LM"
    )
