"""Dropout is written in a way that `eval()` does not switch it off.

## What it does
Finds, in the modules that a script defines, dropout that ignores the mode: `F.scaled_dot_product_attention` with a
`dropout_p` that does not depend on `self.training`, `F.dropout` without `training=`, and a dropout layer that is
created in the forward pass. Not reported: a rate that is always 0, a value that a branch or the class's `train()` sets
by the mode, and files that sample with dropout on purpose (Monte Carlo dropout).

## Why it is bad
Part of the attention or activations is randomly zeroed in validation and generation, too. The validation loss is too
high and differs at each call, the best checkpoint is picked by noise, and the answers are worse than the model could
give. No error is raised: these functions know no mode, and `F.dropout` is on by default.

## Example
```python
import torch.nn as nn
import torch.nn.functional as F

class Attention(nn.Module):
    def __init__(self, width, dropout=0.1):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.dropout = dropout

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
```

## Use instead
```python
import torch.nn as nn
import torch.nn.functional as F

class Attention(nn.Module):
    def __init__(self, width, dropout=0.1):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.dropout = dropout

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        rate = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
```

## Fix safety
There is no automatic fix. Training is unchanged; evaluation scores become better and repeatable.

## References
- pytorch/pytorch#124464
- wenet-e2e/wenet#2699
- rixwew/pytorch-fm#21
- yangze0930/NTS-Net#14
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.dropouts_ignoring_eval_mode import (
    ModelessDropout,
    dropouts_on_in_every_mode,
    inline_dropouts_with_their_form,
)
from truetune.source.parsed_source_file import Module

MESSAGES = {
    "attention": "scaled_dot_product_attention applies its dropout_p in every mode: evaluation and generation"
    " run with dropout",
    "function": "F.dropout applies in every mode, since training defaults to True: evaluation and"
    " generation run with dropout",
    "layer": "the dropout layer is created in the forward pass: a new layer is in training mode, and eval() does not"
    " reach it",
}
REMEDIES = {
    "attention": "make it depend on the mode: dropout_p=self.dropout if self.training else 0.0",
    "function": "call F.dropout(x, p, training=self.training), or use an nn.Dropout layer created in __init__",
    "layer": "create the layer in __init__ (self.dropout = nn.Dropout(p)) and call self.dropout(x) here",
}


def _dropout_calls(module: Module) -> Iterator[ast.AST]:
    """Places that apply a dropout in a module of the script."""
    yield from (call.node for call, _ in inline_dropouts_with_their_form(module))


class DropoutLeftOnInEvaluation(SourceRule):
    code = "SRC520"
    fault = Fault.DROPOUT_IN_WRONG_MODE
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces("dropouts in modules of the script", _dropout_calls)

    def findings(self) -> Iterator[Finding]:
        """Findings on dropout that has no mode, one for each way in which it is written."""
        by_form: dict[str, list[ModelessDropout]] = {}
        for one in dropouts_on_in_every_mode(self.subject):
            by_form.setdefault(one.form, []).append(one)
        for form, dropouts in by_form.items():
            yield self.finding(
                MESSAGES[form],
                REMEDIES[form],
                cases=[case_of_node(self.subject, one.node) for one in dropouts],
            )
