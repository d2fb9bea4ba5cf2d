"""Advantages are divided by a standard deviation that may be 0, so equal rewards give NaN.

## What it does
Looks for a division of rewards or advantages by a `std()` of theirs, to which nothing is added. It does not fire if the
function guards the division: by a small number, a lower bound (`clamp`, `max`), `nan_to_num`, or a test of the spread.

## Why it is bad
If all answers of a group have the same reward, which is common at the start and at the end of a run, the division is 0
by 0. The loss is NaN, and after the next step so are all weights. A group of one answer has no spread either: torch's
`std()` of one number is NaN.

## Example
```python
import torch

for batch in batches:
    rewards = torch.tensor(score(batch))
    advantages = (rewards - rewards.mean()) / rewards.std()
    loss = -(logps_of(policy, batch) * advantages).mean()
    loss.backward()
```

## Use instead
```python
import torch

for batch in batches:
    rewards = torch.tensor(score(batch))
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    loss = -(logps_of(policy, batch) * advantages).mean()
    loss.backward()
```

## Fix safety
Safe: with rewards between 0 and 1, 0.0001 changes an advantage by less than a thousandth.

## References
- thu-ml/tianshou#1298, hill-a/stable-baselines#723, openai/baselines#797, Tencent-Hunyuan/UniRL#330 (groups of one)
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

DIVIDED = re.compile(r"reward|advantage|\badv(?:s|_\w+)?\b|\breturns?\b", re.I)
"""Words of what is divided; scores of an evaluation may be standardised without a guard"""
SPREAD_CALLS = ("std", "nanstd")
GUARDS = ("clamp", "clamp_min", "nan_to_num", "maximum", "max", "where", "isnan", "clip", "isclose")
"""Calls that keep a spread of 0 from doing harm"""


def _divisions_by_spreads(module: Module) -> Iterator[ast.BinOp]:
    """Divisions of rewards or advantages by a standard deviation, guarded or not."""
    for node in module.nodes(ast.BinOp):
        if isinstance(node.op, ast.Div) and DIVIDED.search(ast.unparse(node.left)):
            if any(_is_spread(part) for part in ast.walk(node.right)):
                yield node


class AdvantagesDividedByNoSpread(SourceRule):
    code = "SRC542"
    fault = Fault.POLICY_LOSS_WRONG
    severity = "warning"
    looks_at = CodePlaces("divisions of rewards by their spread", _divisions_by_spreads)

    def findings(self) -> Iterator[Finding]:
        """Findings on divisions without a guard."""
        module = self.subject
        for division in _divisions_by_spreads(module):
            if not _is_spread(division.right) or _is_guarded(module, division):
                continue
            yield self.finding(
                f"{ast.unparse(division.left)} is divided by {ast.unparse(division.right)}, which is 0 if all rewards"
                " are equal: the advantages are NaN, and so are the weights after the step",
                f"divide by ({ast.unparse(division.right)} + 1e-4)",
                cases=[case_of_node(module, division)],
            )


def _is_spread(node: ast.AST) -> bool:
    """Is an expression a standard deviation: `x.std()`, `torch.std(x)`, one of its rows?"""
    if isinstance(node, ast.Subscript):
        return _is_spread(node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in ("unsqueeze", "view", "reshape", "item", "repeat_interleave"):
        return _is_spread(node.func.value)
    return node.func.attr in SPREAD_CALLS


def _is_guarded(module: Module, division: ast.BinOp) -> bool:
    """Is the division kept from a spread of 0: by what stands around it, or by a test of the spread?"""
    spread = ast.unparse(division.right)
    for around in module.parents(division):
        if isinstance(around, ast.Call) and ast.unparse(around.func).rpartition(".")[2] in GUARDS:
            return True
        if isinstance(around, ast.If | ast.IfExp) and "std" in ast.unparse(around.test):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            shown = ast.unparse(around)
            # A test before it (`if rewards.std() == 0: return`), or NaN taken out behind it.
            return f"{spread} ==" in shown or f"{spread} <" in shown or "nan_to_num" in shown
    return False
