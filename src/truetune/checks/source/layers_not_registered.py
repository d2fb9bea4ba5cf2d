"""Layers that a module keeps in a plain list, or creates in its forward pass, are not registered: nothing trains them.

## What it does
Looks at the modules that a script defines. It fires if layers with weights are kept in a list, tuple or dictionary
(`self.heads = [nn.Linear(...), ...]`) instead of `nn.ModuleList` or `nn.ModuleDict`, and if a layer is created and
called in the forward pass. Not reported: lists whose layers are registered in another way (`add_module`,
`nn.Sequential(*layers)`, their `parameters()` in the optimizer), a list with one teacher that is used without
gradients, and norms without weights.

## Why it is bad
`parameters()` does not list them: the optimizer never changes them, `to("cuda")` does not move them, and `state_dict`
does not save them. The model learns around random weights, and gets different ones when it is loaded.

## Example
```python
import torch.nn as nn

class Scorer(nn.Module):
    def __init__(self, body, tasks=4):
        super().__init__()
        self.body = body
        self.heads = [nn.Linear(768, 1) for _ in range(tasks)]

    def forward(self, x):
        return [head(self.body(x)) for head in self.heads]
```

## Use instead
```python
import torch.nn as nn

class Scorer(nn.Module):
    def __init__(self, body, tasks=4):
        super().__init__()
        self.body = body
        self.heads = nn.ModuleList([nn.Linear(768, 1) for _ in range(tasks)])

    def forward(self, x):
        return [head(self.body(x)) for head in self.heads]
```

## Fix safety
There is no automatic fix. Saved weights lack the layers: the training has to be repeated.

## References
- pytorch/pytorch#59925
- pytorch/pytorch#72580
- kymatio/murenn#42
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import (
    may_record_gradients,
)
from truetune.source.parsed_source_file import Module

WEIGHTED = (
    "torch.nn.Linear",
    "torch.nn.Embedding",
    "torch.nn.Conv1d",
    "torch.nn.Conv2d",
    "torch.nn.LayerNorm",
    "torch.nn.RMSNorm",
    "torch.nn.LSTM",
    "torch.nn.GRU",
    "torch.nn.Bilinear",
    "torch.nn.MultiheadAttention",
    "torch.nn.TransformerEncoderLayer",
    "torch.nn.TransformerDecoderLayer",
    "torch.nn.Parameter",
    "torch.nn.Sequential",
)
MODULES = (
    "torch.nn.Module",
    "torch.nn.modules.*",
    "*LightningModule",
    "transformers.*PreTrainedModel",
)
CONTAINERS = (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp)
WRAPPERS = ("ModuleList", "ModuleDict", "Sequential", "ParameterList")
"""Ends of the names of containers that torch looks into"""
REGISTERED = ("add_module", "register_module", "register_parameter", "add_param_group", "setattr(")


def _module_classes(module: Module) -> Iterator[ast.ClassDef]:
    """The modules that a file defines."""
    for one in module.nodes(ast.ClassDef):
        bases = module.flow.bases(one)
        if any(fnmatchcase(base, pattern) for base in bases for pattern in MODULES):
            yield one


class LayersNotRegistered(SourceRule):
    code = "SRC528"
    fault = Fault.NO_WEIGHT_TRAINED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = CodePlaces("modules of the script", _module_classes)

    def findings(self) -> Iterator[Finding]:
        """Findings on layers that are no part of their module."""
        module = self.subject
        for owner in _module_classes(module):
            for assignment, name in _plain_containers_of_layers(module, owner):
                if not _is_registered_otherwise(module, owner, name):
                    yield self.finding(
                        f"the layers of self.{name} are in a plain list or dictionary, which torch does not search:"
                        " they"
                        " are not trained, moved or saved with the module",
                        f"keep them in nn.ModuleList: self.{name} = nn.ModuleList([...]); a dictionary of layers in"
                        " nn.ModuleDict",
                        cases=[case_of_node(module, assignment)],
                    )
            for call in _layers_made_in_forward(module, owner):
                yield self.finding(
                    "a layer is created in the forward pass: it has new random weights at each call, which are"
                    " never trained"
                    " or saved",
                    "create the layer in __init__ as an attribute (self.layer = ...), and call self.layer(x) here",
                    cases=[case_of_node(module, call)],
                )


def _plain_containers_of_layers(
    module: Module, owner: ast.ClassDef
) -> Iterator[tuple[ast.Assign, str]]:
    """The attributes of a module that are set to a plain container with layers in it."""
    for node in ast.walk(owner):
        if not isinstance(node, ast.Assign) or module.flow.class_around(node) is not owner:
            continue
        for target in node.targets:
            is_own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
            if not is_own or not isinstance(target, ast.Attribute):
                continue
            if not isinstance(node.value, CONTAINERS):
                continue
            if _holds_layers(module, node.value) or _is_empty_container_filled_with_layers(
                module, owner, node.value, target
            ):
                yield node, target.attr


def _is_empty_container_filled_with_layers(
    module: Module, owner: ast.ClassDef, container: ast.expr, target: ast.Attribute
) -> bool:
    """Is an empty list or dictionary filled with layers: by `append`, or under names?"""
    if not isinstance(container, ast.List | ast.Dict) or list(ast.iter_child_nodes(container))[1:]:
        return False
    own = ast.unparse(target)
    for node in ast.walk(owner):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{own}.append" and node.args:
            if _makes_layer_with_weights(module, node.args[0]):
                return True
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            if ast.unparse(node.targets[0].value) == own and _makes_layer_with_weights(
                module, node.value
            ):
                return True
    return False


def _holds_layers(module: Module, container: ast.expr) -> bool:
    """Are the items of a container layers with weights?"""
    if isinstance(container, ast.ListComp):
        items: list[ast.expr] = [container.elt]
    elif isinstance(container, ast.DictComp):
        items = [container.value]
    elif isinstance(container, ast.Dict):
        items = container.values
    else:
        items = list(container.elts) if isinstance(container, ast.List | ast.Tuple) else []
    return bool(items) and all(_makes_layer_with_weights(module, one) for one in items)


def _makes_layer_with_weights(module: Module, node: ast.expr) -> bool:
    """Does an expression make a layer with weights, of torch or of the file?"""
    if not isinstance(node, ast.Call):
        return False
    call = module.flow.call(node)
    if call.named(*WEIGHTED):
        return True
    definition = module.flow.class_of_object(node)
    return definition is not None and definition in set(_module_classes(module))


def _is_registered_otherwise(module: Module, owner: ast.ClassDef, name: str) -> bool:
    """Are the layers of an attribute registered by another way, or given to an optimizer themselves?"""
    text = ast.unparse(owner)
    if any(one in text for one in REGISTERED):
        return True
    own = f"self.{name}"
    for node in ast.walk(owner):
        if _is_torch_container_or_gives_to_optimizer(node) and own in ast.unparse(node):
            return True
    loops = (ast.GeneratorExp, ast.ListComp, ast.For)
    for loop in (node for kind in loops for node in module.nodes(kind)):
        shown = ast.unparse(loop)
        if f".{name}" in shown and "parameters()" in shown:
            return True
    return _is_layer_unregistered_on_purpose(module, owner, own)


def _is_layer_unregistered_on_purpose(module: Module, owner: ast.ClassDef, own: str) -> bool:
    """Is one layer kept out of the module, as a frozen teacher is: in a list of one, and used without gradients?"""
    values = _values_set(owner, own)
    if not all(isinstance(one, ast.List | ast.Tuple) and len(one.elts) == 1 for one in values):
        return False
    reads = _reads_outside_init(module, owner, own)
    return bool(reads) and not any(may_record_gradients(module, node) for node in reads)


def _values_set(owner: ast.ClassDef, own: str) -> list[ast.expr]:
    """The expressions that a class sets an attribute to, which is written as `self.teacher`."""
    return [
        node.value
        for node in ast.walk(owner)
        if isinstance(node, ast.Assign)
        and any(ast.unparse(target) == own for target in node.targets)
    ]


def _reads_outside_init(module: Module, owner: ast.ClassDef, own: str) -> list[ast.Attribute]:
    """The places at which a class reads an attribute, but for its `__init__`."""
    reads = [
        node
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    ]
    return [
        node
        for node in reads
        if ast.unparse(node) == own
        and getattr(module.function_around(node), "name", "") != "__init__"
    ]


def _is_torch_container_or_gives_to_optimizer(node: ast.AST) -> bool:
    """Is it a container of torch that is made, or a method that gives weights to an optimizer?"""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).endswith(WRAPPERS)
    # `parameters`, `trainable_params`
    return isinstance(node, ast.FunctionDef) and "param" in node.name


def _layers_made_in_forward(module: Module, owner: ast.ClassDef) -> Iterator[ast.Call]:
    """The layers that a forward pass makes and calls at once."""
    for function in owner.body:
        if not isinstance(function, ast.FunctionDef) or function.name != "forward":
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Call):
                continue
            layer = module.flow.call(node.func)
            is_layer = layer.named(*WEIGHTED) and not layer.named(
                "torch.nn.Parameter", "torch.nn.Seq*"
            )
            has_weights = module.flow.value(layer.keywords.get("elementwise_affine")) is not False
            if is_layer and has_weights:
                yield node.func
