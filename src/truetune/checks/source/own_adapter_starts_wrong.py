"""A custom LoRA adapter initialises both of its matrices with zeros, or both at random.

## What it does
Looks at modules of a script that contain the two matrices of a low-rank adapter (`lora_A` and `lora_B`, `A` and `B`,
`down` and `up`) as parameters or linear layers, and reads how each one is initialised. It is an error if both are zero,
and a warning if both are random. It does not report frozen matrices, a product that is subtracted from the weights or
multiplied by a parameter that starts at zero, or scripts that only load a trained adapter.

## Why it is bad
The gradient of each matrix is a product with the other one. If both are zero, both gradients are zero in every step:
nothing is trained, and the only sign is a loss that does not fall. If both are random, the adapter changes the model's
output before the first step, and training must first undo this.

## Example
```python
import torch
import torch.nn as nn

class LoRALinear(nn.Module):
    def __init__(self, linear, r=8):
        super().__init__()
        self.linear = linear
        self.lora_A = nn.Parameter(torch.zeros(r, linear.in_features))
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, r))

    def forward(self, x):
        return self.linear(x) + x @ self.lora_A.T @ self.lora_B.T
```

## Use instead
```python
import torch
import torch.nn as nn

class LoRALinear(nn.Module):
    def __init__(self, linear, r=8):
        super().__init__()
        self.linear = linear
        self.lora_A = nn.Parameter(torch.randn(r, linear.in_features) / r**0.5)
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, r))

    def forward(self, x):
        return self.linear(x) + x @ self.lora_A.T @ self.lora_B.T
```

## Fix safety
There is no automatic fix: initialise one matrix at random and the other with zeros. Weights trained with two zero
matrices contain nothing. Weights trained with two random matrices can be used as they are.

## References
- Guitaricet/relora#18
- hao-ai-lab/FastVideo#781
- circle-hit/SAPT#11
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
from truetune.source.parsed_source_file import Module

PAIRS = (
    (
        re.compile(r"^(?:lora_?a|a|lora_down|down|w_a|A)$"),
        re.compile(r"^(?:lora_?b|b|lora_up|up|w_b|B)$"),
    ),
    (re.compile(r"^lora_A$"), re.compile(r"^lora_B$")),
    (re.compile(r"^matrix_A$", re.I), re.compile(r"^matrix_B$", re.I)),
)
ADAPTER = re.compile(r"lora|low.?rank.?adapt", re.I)
"""Words of a class that is an adapter; other layers of low rank are trained from scratch"""
ZEROS = re.compile(r"torch\.zeros\(|\.new_zeros\(|zeros_like\(|zeros_\(")
RANDOM = re.compile(
    r"randn|\brand\(|normal_?\(|uniform_?\(|xavier|kaiming|orthogonal_|trunc_normal"
)
MAKERS = ("torch.nn.Parameter", "torch.nn.Linear")
INITIALIZED_IN_LOOP = re.compile(r"for .+ in .*(?:named_)?(?:parameters|modules|children)\(\)")
"""A loop over all parameters, whose branches decide how each of them starts"""
TRAINING = re.compile(r"\.backward\(|Trainer\(|\boptim\b")


class Matrix(NamedTuple):
    """A matrix of an adapter."""

    node: ast.Assign
    start: str
    """`zero`, `random`, or empty where it is not known"""
    name: str


def _adapter_classes(module: Module) -> Iterator[ast.ClassDef]:
    """Classes that look like an adapter of low rank."""
    for one in module.nodes(ast.ClassDef):
        if ADAPTER.search(one.name) and any("Module" in base for base in module.flow.bases(one)):
            yield one


class OwnAdapterStartsWrong(SourceRule):
    code = "SRC529"
    fault = Fault.ADAPTER_EMPTY_OR_INEFFECTIVE
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = CodePlaces("adapters that are written by hand", _adapter_classes)

    def findings(self) -> Iterator[Finding]:
        """Findings on adapters whose two matrices start alike."""
        module = self.subject
        for owner in _adapter_classes(module):
            pair = _pair_of_matrices(module, owner)
            if pair is None or pair[0].start != pair[1].start or not pair[0].start:
                continue
            if _is_equal_initialization_made_up_for(module, owner, pair):
                continue
            cases = [case_of_node(module, one.node) for one in pair]
            if pair[0].start == "zero":
                yield self.finding(
                    f"both matrices of {owner.name} start at zero: the gradient of each is a product with the other,"
                    " so both stay zero and nothing is trained",
                    "initialise one of them at random, as torch.randn does, and leave the other at zero; PEFT uses"
                    " nn.init.kaiming_uniform_(A, a=5**0.5)",
                    cases=cases,
                )
            else:
                yield self.finding(
                    f"both matrices of {owner.name} start at random: the adapter changes the model's output before the"
                    " first step",
                    "initialise the second one (B) with zeros: nn.init.zeros_(B)",
                    severity="warning",
                    cases=cases,
                )


def _pair_of_matrices(module: Module, owner: ast.ClassDef) -> tuple[Matrix, Matrix] | None:
    """The two matrices of an adapter; None where they are not found."""
    made = dict(_matrix_names_and_assignments(module, owner))
    text = "\n".join(part.text for part in module.self_and_files_run_together)
    for first, second in PAIRS:
        names = [next((name for name in made if one.search(name)), None) for one in (first, second)]
        if names[0] is not None and names[1] is not None and names[0] != names[1]:
            one, other = (
                Matrix(made[name], _initialization_of_matrix(made[name], name, text), name)
                for name in (names[0], names[1])
            )
            return one, other
    return None


def _matrix_names_and_assignments(
    module: Module, owner: ast.ClassDef
) -> Iterator[tuple[str, ast.Assign]]:
    """The names of the parameters and linear layers that a class makes, each with its assignment."""
    for node in ast.walk(owner):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if not module.flow.call(node.value).named(*MAKERS):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr, node


def _is_equal_initialization_made_up_for(
    module: Module, owner: ast.ClassDef, pair: tuple[Matrix, Matrix]
) -> bool:
    """Does the rest of a class, or of the script, make up for two matrices that start alike?"""
    text = ast.unparse(owner)
    is_frozen = any("requires_grad=False" in ast.unparse(one.node) for one in pair)
    if is_frozen or INITIALIZED_IN_LOOP.search(text):
        return True
    if pair[0].start == "zero":
        texts = [part.text for part in module.self_and_files_run_together]
        is_loaded = any("load_state_dict" in one for one in texts)
        return is_loaded and not any(TRAINING.search(one) for one in texts)
    return _starts_without_effect(owner, pair)


def _starts_without_effect(owner: ast.ClassDef, pair: tuple[Matrix, Matrix]) -> bool:
    """Is the product of two random matrices taken off the weights first, or multiplied by a parameter of zeros?"""
    own = [one.node for one in pair]
    for node in ast.walk(owner):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub):
            if all(one.name in ast.unparse(node.value) for one in pair):
                return True
        if isinstance(node, ast.Assign) and node not in own and _makes_parameter_of_zeros(node):
            return True
    return False


def _makes_parameter_of_zeros(node: ast.Assign) -> bool:
    """Does an assignment make a parameter that starts as zero, and is no weight or bias?"""
    made = ast.unparse(node.value)
    is_parameter = "Parameter(" in made
    return is_parameter and ZEROS.search(made) is not None and not _sets_weight(node)


def _sets_weight(node: ast.Assign) -> bool:
    """Does an assignment set the weight or the bias of a layer?"""
    return any(ast.unparse(one).rpartition(".")[2] in ("weight", "bias") for one in node.targets)


def _initialization_of_matrix(node: ast.Assign, name: str, text: str) -> str:
    """How a matrix starts: by what it is made of, and by what initializes it afterwards."""
    again = re.search(rf"\.{name}\.(?:weight|data)(?:\.data)?\s*=\s*([^=].*)", text)
    if again is not None:
        return _initialization_by_expression(again[1])
    for match in re.finditer(
        rf"(\w+_)\(\s*\w+\.{name}(?:\.weight)?(?:\.data)?\b|\.{name}(?:\.weight)?(?:\.data)?\.(\w+_)\(",
        text,
    ):
        method = (match[1] or match[2]) + "("
        if ZEROS.search(method) or method == "zero_(":
            return "zero"
        if RANDOM.search(method):
            return "random"
        return ""
    made = ast.unparse(node.value)
    return (
        "random"
        if made.startswith(("nn.Linear", "torch.nn.Linear"))
        else _initialization_by_expression(made)
    )


def _initialization_by_expression(made: str) -> str:
    """How a tensor starts that is made by an expression."""
    if ZEROS.search(made):
        return "zero"
    return "random" if RANDOM.search(made) else ""
