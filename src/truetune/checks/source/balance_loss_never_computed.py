"""A factor for the balance of experts is set, but the balance is never computed.

## What it does
Looks for `router_aux_loss_coef` above 0 in a file that trains with the Trainer of transformers or with a loop of its
own, and that nowhere sets `output_router_logits`.

## Why it is bad
Models of transformers compute the balance of their experts only where they return the router's logits, which is off by
default. The factor is taken without a word, and the experts are trained without any balance: over a long training a few
of them get most of the tokens. Trainers of TRL switch it on by themselves from 1.7 on.

## Example
```python
from transformers import AutoModelForCausalLM, Trainer

model = AutoModelForCausalLM.from_pretrained("mistralai/Mixtral-8x7B-v0.1")
model.config.router_aux_loss_coef = 0.02
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
```

## Use instead
```python
from transformers import AutoModelForCausalLM, Trainer

model = AutoModelForCausalLM.from_pretrained("mistralai/Mixtral-8x7B-v0.1", output_router_logits=True)
model.config.router_aux_loss_coef = 0.02
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
```

## Fix safety
With the balance in it, the logged loss is larger by the factor times a number near 1 (or the number of experts that a
token is given to). It takes some memory for the logits of all layers.

## References
- huggingface/transformers#44242, huggingface/transformers#44586, huggingface/trl#6085, hiyouga/LlamaFactory#8054
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module

FACTOR, SWITCH = "router_aux_loss_coef", "output_router_logits"
OF_TRL = ("SFTTrainer", "DPOTrainer", "KTOTrainer", "GRPOTrainer", "RLOOTrainer")
"""Trainers that switch the balance on by themselves"""
FIRST_TRL_WITH_SWITCH = "1.7.0"
SIGNS_OF_TRAINING = ("Trainer(", ".backward(")


def _factors(module: Module) -> Iterator[ast.AST]:
    """Places that set the factor above 0: an attribute, or an argument."""
    for node in module.nodes(ast.Assign):
        is_factor = any(
            isinstance(one, ast.Attribute) and one.attr == FACTOR for one in node.targets
        )
        if is_factor and _is_above_zero(node.value):
            yield node
    for call in module.all_calls:
        value = call.keywords.get(FACTOR)
        if value is not None and _is_above_zero(value):
            yield value


def _is_above_zero(node: ast.expr) -> bool:
    """Is it a number above 0?"""
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


class BalanceLossNeverComputed(SourceRule):
    code = "SRC583"
    fault = Fault.BALANCE_OF_EXPERTS_WRONG
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = CodePlaces("factors for the balance of experts", _factors)

    def findings(self) -> Iterator[Finding]:
        """The finding on the first place that sets the factor."""
        module = self.subject
        places = list(_factors(module))
        if not places or module.mentions(SWITCH) or not module.mentions(*SIGNS_OF_TRAINING):
            return
        is_old_trl = module.pins.is_release_surely_before("trl", FIRST_TRL_WITH_SWITCH)
        if module.mentions(*OF_TRL) and not is_old_trl:
            return
        yield self.finding(
            f"{FACTOR} is set, but nothing sets {SWITCH}: the balance of the experts is never computed",
            f"load the model with {SWITCH}=True",
            cases=[case_of_node(module, place) for place in places],
        )
