"""The loss that balances experts is added to a loss that holds it already.

## What it does
Looks for a sum of `outputs.loss` and `outputs.aux_loss` of the same outputs, in files that set `output_router_logits`,
as models of transformers need it. Other models may return a loss without the balance.

## Why it is bad
Models of transformers add `router_aux_loss_coef` times the balance of the experts to `outputs.loss` themselves, where
labels are given and router logits are returned; only then is there an `aux_loss`. Added again, it has more than the
weight that was meant: with a factor of 0.02 beside the model's 0.001, twenty-one times. The experts are used evenly,
and the answers get worse. Trainers of TRL add it by themselves too.

## Example
```python
from transformers import Trainer


class BalancedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs, output_router_logits=True, num_items_in_batch=num_items_in_batch)
        loss = outputs.loss + 0.02 * outputs.aux_loss
        return (loss, outputs) if return_outputs else loss
```

## Use instead
```python
from transformers import Trainer


class BalancedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs, output_router_logits=True, num_items_in_batch=num_items_in_batch)
        loss = outputs.loss
        return (loss, outputs) if return_outputs else loss
```

## Fix safety
The weight is `router_aux_loss_coef` of the model's config. A sum is right where that is set to 0.

## References
- transformers, `MixtralForCausalLM.forward` (`loss += self.router_aux_loss_coef * aux_loss`)
- huggingface/trl#4012, huggingface/trl#6083
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module

LOSS, BALANCE = "loss", "aux_loss"
SWITCH = "output_router_logits"
"""By it a file says that its model is one of transformers that returns the balance"""
ZERO_COEFFICIENT = re.compile(r"router_aux_loss_coef[\"']?\s*[=:]\s*0(?:\.0*)?(?![\d.])")
"""The model adds nothing then"""


def _sums(module: Module) -> Iterator[ast.AST]:
    """Sums, and additions to a name."""
    yield from (node for node in module.nodes(ast.BinOp) if isinstance(node.op, ast.Add))
    yield from (node for node in module.nodes(ast.AugAssign) if isinstance(node.op, ast.Add))


class BalanceLossAddedTwice(SourceRule):
    code = "SRC581"
    fault = Fault.BALANCE_OF_EXPERTS_WRONG
    symptoms = ("loss-does-not-fall",)
    severity = "warning"
    looks_at = CodePlaces("sums", _sums)

    def findings(self) -> Iterator[Finding]:
        """Findings on sums of a loss with a part that it holds."""
        module = self.subject
        # Models of other code than transformers' may return a loss without the balance in it.
        if f".{BALANCE}" not in module.text or not module.mentions(SWITCH):
            return
        if any(ZERO_COEFFICIENT.search(one.text) for one in module.self_and_files_run_together):
            return
        outputs_of_names = _outputs_by_loss_name(module)
        for node in _sums(module):
            summands = _summands(node)
            balanced = {owner for one in summands for owner in _owners(one, BALANCE)}
            whole = {owner for one in summands for owner in _outputs_of_loss(one, outputs_of_names)}
            if balanced & whole:
                yield self.finding(
                    f"outputs.{LOSS} holds {BALANCE} already, times router_aux_loss_coef: here it is added again",
                    f"leave {BALANCE} out of the sum (the config's router_aux_loss_coef is its factor)",
                    cases=[case_of_node(module, node)],
                )


def _outputs_by_loss_name(module: Module) -> dict[str, str]:
    """Name -> the outputs whose loss it is: `loss = outputs.loss`."""
    names = {}
    for node in module.nodes(ast.Assign):
        owners = [*_owners(node.value, LOSS)] if isinstance(node.value, ast.Attribute) else []
        for target in node.targets:
            if isinstance(target, ast.Name) and owners:
                names[target.id] = owners[0]
    return names


def _summands(node: ast.AST) -> list[ast.expr]:
    """The summands of a sum, and the name that something is added to."""
    if isinstance(node, ast.AugAssign):
        return [node.target, *_summands(node.value)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node] if isinstance(node, ast.expr) else []


def _owners(node: ast.AST, attribute: str) -> Iterator[str]:
    """The names whose attribute stands in an expression: `outputs` of `0.02 * outputs.aux_loss`."""
    for one in ast.walk(node):
        if (
            isinstance(one, ast.Attribute)
            and one.attr == attribute
            and isinstance(one.value, ast.Name)
        ):
            yield one.value.id


def _outputs_of_loss(node: ast.expr, outputs_of_names: dict[str, str]) -> Iterator[str]:
    """The outputs whose whole loss a summand is."""
    if isinstance(node, ast.Attribute):
        yield from _owners(node, LOSS)
    elif isinstance(node, ast.Name) and node.id in outputs_of_names:
        yield outputs_of_names[node.id]
