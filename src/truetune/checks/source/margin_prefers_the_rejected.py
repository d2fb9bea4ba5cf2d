"""The margin of a preference loss in the script is reversed: the model learns to prefer the rejected answers.

## What it does
Inspects `-logsigmoid(...)` and `softplus(-...)`, and expands their argument into a sum, following variable assignments.
It fires if each chosen term has a minus and each rejected term a plus, and the reference model's terms the opposite
signs. Chosen and rejected are recognised by names and keys (`chosen_logps`, `batch["rejected"]`). A script that uses
both directions (label smoothing) is not reported.

## Why it is bad
The loss falls and the gradients have their usual size, but the model learns to prefer what was rejected. A printed
margin is reversed as well, and rises.

## Example
```python
import torch.nn.functional as F

def dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta=0.1):
    margin = (rejected - ref_rejected) - (chosen - ref_chosen)
    return -F.logsigmoid(beta * margin).mean()
```

## Use instead
```python
import torch.nn.functional as F

def dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta=0.1):
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()
```

## Fix safety
There is no automatic fix: if the variable names are what is swapped, the loss is right. Print the log-probabilities of
one pair to see which is which. A model trained with this loss has to be trained again.

## References
- Rafailov et al., DPO (arXiv:2305.18290), equation 7
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
from truetune.checks.source.evidence.expressions_as_signed_sums_of_terms import (
    names_and_texts_in_expression,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LOG_SIGMOIDS = ("torch.nn.functional.logsigmoid",)
SOFTPLUS = ("torch.nn.functional.softplus",)
CHOSEN = frozenset(("chosen", "preferred", "winner", "winning", "yw"))
REJECTED = frozenset(("rejected", "dispreferred", "loser", "losing", "yl"))
REFERENCE = re.compile(r"(?:^|_)(?:ref|reference)(?:_|$)|^ref", re.IGNORECASE)
"""Names of what belongs to the reference"""
MAX_STEPS = 12
"""Names through which a term is followed; chosen: losses that are written out have three or four"""
MAX_STEPS_OF_ARGUMENTS = 3
"""The same for the arguments of a call; further off stand the rows, which have both sides"""


class MarginTerm(NamedTuple):
    """One term of a margin."""

    sign: int
    side: str
    is_reference: bool


def _minimized_log_sigmoids_and_signs(module: Module) -> Iterator[tuple[Call, int]]:
    """The log sigmoids that a loss makes small by a minus, and the softplus of the same meaning, which has a sign."""
    for call in module.calls(*LOG_SIGMOIDS):
        if call.args and _is_negated_by_enclosing_minus(module, call.node):
            yield call, 1
    for call in module.calls(*SOFTPLUS):
        if call.args:
            yield call, -1


def _hand_written_preference_losses(module: Module) -> Iterator[object]:
    """Losses of preferences that a script writes out."""
    return iter(list(_minimized_log_sigmoids_and_signs(module)))


class MarginPrefersTheRejected(SourceRule):
    code = "SRC293"
    fault = Fault.PREFERENCES_REVERSED
    symptoms = ("dpo-without-effect",)
    severity = "error"
    looks_at = CodePlaces(
        "losses of preferences that are written out", _hand_written_preference_losses
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        directions = [
            (
                call,
                _direction_of_margin(
                    _chosen_and_rejected_terms(module, call.args[0], sign, MAX_STEPS)
                ),
            )
            for call, sign in _minimized_log_sigmoids_and_signs(module)
        ]
        if any(direction > 0 for _, direction in directions):
            return
        for call, direction in directions:
            if direction < 0:
                yield self.finding(
                    "the margin is rejected minus chosen: the model learns to prefer the rejected answers",
                    "reverse it: margin = (chosen - ref_chosen) - (rejected - ref_rejected)",
                    cases=[case_of_node(module, call.node)],
                )


def _is_negated_by_enclosing_minus(module: Module, node: ast.AST) -> bool:
    """Does a minus stand before an expression, or before a product or a mean of it?"""
    for parent in module.parents(node):
        if isinstance(parent, ast.UnaryOp):
            return isinstance(parent.op, ast.USub)
        is_product = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult)
        if not is_product and not isinstance(parent, ast.Attribute | ast.Call):
            return False
    return False


def _chosen_and_rejected_terms(
    module: Module, node: ast.AST, sign: int, steps: int
) -> list[MarginTerm]:
    """The terms of chosen and rejected answers in a sum; terms of neither are left out."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _chosen_and_rejected_terms(module, node.operand, -sign, steps)
    if isinstance(node, ast.BinOp):
        return _terms_of_operation(module, node, sign, steps)
    words = names_and_texts_in_expression(node)
    side = _chosen_or_rejected_named_in_words(words)
    if side:
        return [MarginTerm(sign, side, any(map(REFERENCE.search, words)))]
    if isinstance(node, ast.Name) and steps > 0:
        return _terms_of_name(module, node, sign, steps - 1)
    if isinstance(node, ast.Call) and steps > 0:
        return _terms_of_call(module, node, sign, steps - 1)
    return []


def _terms_of_operation(module: Module, node: ast.BinOp, sign: int, steps: int) -> list[MarginTerm]:
    """Both sides of a sum; the one side of a product that has terms, for the other is a factor."""
    left = _chosen_and_rejected_terms(module, node.left, sign, steps)
    if isinstance(node.op, ast.Div):
        return left
    right_sign = -sign if isinstance(node.op, ast.Sub) else sign
    right = _chosen_and_rejected_terms(module, node.right, right_sign, steps)
    if isinstance(node.op, ast.Add | ast.Sub):
        return left + right
    if not isinstance(node.op, ast.Mult) or (left and right):
        return []
    factor = node.right if left else node.left
    return _terms_with_flipped_sign(left or right) if _is_negative_factor(factor) else left or right


def _terms_with_flipped_sign(terms: list[MarginTerm]) -> list[MarginTerm]:
    """The same terms with the other sign."""
    return [term._replace(sign=-term.sign) for term in terms]


def _is_negative_factor(factor: ast.AST) -> bool:
    """Has a factor a minus?"""
    return isinstance(factor, ast.UnaryOp) and isinstance(factor.op, ast.USub)


def _terms_of_name(module: Module, node: ast.Name, sign: int, steps: int) -> list[MarginTerm]:
    """The terms of what a name is set to, where that is one expression; the reference's where its name says so."""
    value = _value_of_name(module, node)
    if value is None:
        return []
    terms = _chosen_and_rejected_terms(module, value, sign, steps)
    if REFERENCE.search(node.id):
        return [term._replace(is_reference=True) for term in terms]
    return terms


def _terms_of_call(module: Module, node: ast.Call, sign: int, steps: int) -> list[MarginTerm]:
    """The one term of a call, such as `logps(model, batch)`, by what its arguments are made of."""
    words = _names_and_keys_in_expression_and_origins(module, node, steps)
    side = _chosen_or_rejected_named_in_words(words)
    return [MarginTerm(sign, side, any(map(REFERENCE.search, words)))] if side else []


def _value_of_name(module: Module, name: ast.Name) -> ast.expr | None:
    """The one expression that a name is set to, as it is written: a call says more than what it returns."""
    bindings = module.scopes.bindings_that_reach(name)
    if len(bindings) != 1 or bindings[0].kind != "value":
        return None
    value = bindings[0].value
    for place in bindings[0].path:
        if not isinstance(value, ast.Tuple | ast.List) or place >= len(value.elts):
            return None
        value = value.elts[place]
    return value


def _names_and_keys_in_expression_and_origins(
    module: Module, node: ast.AST, steps: int
) -> list[str]:
    """The names and keys in an expression, and in those that its names are set to."""
    words = names_and_texts_in_expression(node)
    if steps <= 0:
        return words
    for name in (one for one in ast.walk(node) if isinstance(one, ast.Name)):
        value = _value_of_name(module, name)
        if value is not None:
            words += _names_and_keys_in_expression_and_origins(
                module, value, min(steps - 1, MAX_STEPS_OF_ARGUMENTS)
            )
    return words


def _chosen_or_rejected_named_in_words(words: list[str]) -> str:
    """The one side that words name; empty where they name none, or both."""
    parts = {part for word in words for part in word.lower().split("_")}
    is_chosen, is_rejected = bool(parts & CHOSEN), bool(parts & REJECTED)
    if is_chosen == is_rejected:
        return ""
    return "chosen" if is_chosen else "rejected"


def _direction_of_margin(terms: list[MarginTerm]) -> int:
    """1 where a margin is that of the chosen answer, -1 where it is that of the rejected one; 0 where it is neither."""
    turned = {
        term.sign * (1 if term.side == "chosen" else -1) * (-1 if term.is_reference else 1)
        for term in terms
    }
    sides = {term.side for term in terms if not term.is_reference}
    return turned.pop() if len(turned) == 1 and len(sides) == 2 else 0
