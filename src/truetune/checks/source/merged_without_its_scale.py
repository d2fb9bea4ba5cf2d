"""A script merges an adapter by hand without its scale: `B @ A` is added without `lora_alpha / r`.

## What it does
Looks at scripts that read the matrices of an adapter by their names (`lora_A`, `lora_B`), multiply them and add the
product to weights. It fires if nothing multiplies the product, nothing in the script mentions the scale (`alpha`,
`scaling`), and no adapter_config.json next to the adapter says that it is 1.

## Why it is bad
The adapter computes `lora_alpha / r` times the product. With alpha 32 and rank 8 the merged weights contain a quarter
of the trained update: the tuned behaviour is faint, although the adapter itself works.

## Example
```python
from safetensors.torch import load_file, save_file

base = load_file("base/model.safetensors")
lora = load_file("adapter/adapter_model.safetensors")
for name in base:
    key = "base_model.model." + name.removesuffix(".weight")
    if key + ".lora_A.weight" in lora:
        base[name] += lora[key + ".lora_B.weight"] @ lora[key + ".lora_A.weight"]
save_file(base, "merged/model.safetensors")
```

## Use instead
```python
import json

from safetensors.torch import load_file, save_file

config = json.load(open("adapter/adapter_config.json"))
scale = config["lora_alpha"] / config["r"]
base = load_file("base/model.safetensors")
lora = load_file("adapter/adapter_model.safetensors")
for name in base:
    key = "base_model.model." + name.removesuffix(".weight")
    if key + ".lora_A.weight" in lora:
        base[name] += scale * (lora[key + ".lora_B.weight"] @ lora[key + ".lora_A.weight"])
save_file(base, "merged/model.safetensors")
```

## Fix safety
There is no automatic fix: the scale is in adapter_config.json. It is `lora_alpha / sqrt(r)` if that has `use_rslora`.
PEFT's `merge_and_unload` applies it automatically.

## References
- rasbt/LLMs-from-scratch#821 (the scale is alpha / rank)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import read_json
from truetune.source.parsed_source_file import Module

PRODUCTS = ("torch.matmul", "torch.mm", "torch.bmm", "numpy.matmul", "numpy.dot")
EINSUMS = ("torch.einsum", "numpy.einsum")
SCALE = re.compile(r"alpha|scal|merge_and_unload", re.I)
FORWARD = re.compile(r"\bdef forward\(|nn\.Module")
"""A module that computes an adapter has a scale of its own choice"""


def _products_of_lora_matrices(module: Module) -> Iterator[ast.AST]:
    """The products of a file whose factors are named as the two matrices of an adapter."""
    if not ("lora_A" in module.text and "lora_B" in module.text):
        return
    for node in module.nodes(ast.BinOp):
        if isinstance(node.op, ast.MatMult) and _are_both_matrices(module, node.left, node.right):
            yield node
    for call in module.calls(*PRODUCTS):
        if len(call.args) == 2 and _are_both_matrices(module, *call.args):
            yield call.node
    for call in module.calls(*EINSUMS):
        if len(call.args) == 3 and _are_both_matrices(module, *call.args[1:]):
            yield call.node


def _are_both_matrices(module: Module, one: ast.expr, other: ast.expr) -> bool:
    """Is one factor read as `lora_A` and the other as `lora_B`?

    In either order: of transposed matrices, A comes first.
    """
    return any(
        _does_factor_name_matrix(module, first, "lora_A")
        and _does_factor_name_matrix(module, second, "lora_B")
        for first, second in ((one, other), (other, one))
    )


def _does_factor_name_matrix(module: Module, factor: ast.expr, name: str) -> bool:
    """Does a text that names a matrix take part in a factor?"""
    return any(
        isinstance(part, ast.Constant) and isinstance(part.value, str) and name in part.value
        for part in backward_slice(module, factor)
    )


class MergedWithoutItsScale(SourceRule):
    code = "SRC535"
    fault = Fault.ADAPTER_STRENGTH_DIFFERS
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = CodePlaces("products of an adapter's matrices", _products_of_lora_matrices)

    def findings(self) -> Iterator[Finding]:
        """Findings on merges by hand that leave the scale out."""
        module = self.subject
        texts = [part.text for part in module.self_and_files_run_together]
        if any(SCALE.search(text) or FORWARD.search(text) for text in texts):
            return
        if _scale_of_adapter_beside_script(module) == 1.0:
            return
        for node in _products_of_lora_matrices(module):
            if not _is_added_without_scale(module, node):
                continue
            yield self.finding(
                "the product of the adapter's matrices is added without its scale lora_alpha / r: the merged model"
                " gets the"
                " wrong share of the trained update",
                "multiply the product by lora_alpha / r from adapter_config.json (lora_alpha / r**0.5 with use_rslora)",
                cases=[case_of_node(module, node)],
            )


def _is_added_without_scale(module: Module, product: ast.AST) -> bool:
    """Is a product added to something, and multiplied by nothing on the way?"""
    for addend in _addends(module):
        parts = list(backward_slice(module, addend))
        if product in parts and not any(_multiplies_or_divides(part) for part in parts):
            return True
    return False


def _addends(module: Module) -> Iterator[ast.expr]:
    """What a file adds to something: by an operator, or by `add` and `add_`."""
    for node in module.nodes(ast.AugAssign):
        if isinstance(node.op, ast.Add):
            yield node.value
    for operation in module.nodes(ast.BinOp):
        if isinstance(operation.op, ast.Add):
            yield from (operation.left, operation.right)
    for call in (*module.methods("add", "add_"), *module.calls("torch.add")):
        yield from call.args


def _multiplies_or_divides(node: ast.AST) -> bool:
    """Does a node multiply or divide by a factor?"""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mult | ast.Div)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("mul", "mul_", "div", "div_")
    return False


def _scale_of_adapter_beside_script(module: Module) -> float | None:
    """The scale of the one adapter beside a script; None where there is none, or more."""
    folder = Path(module.path).parent
    config_files = [*folder.glob("adapter_config.json"), *folder.glob("*/adapter_config.json")]
    if len(config_files) != 1:
        return None
    try:
        settings = read_json(config_files[0], SETTINGS)
        return float(settings["lora_alpha"]) / float(settings["r"])
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None
