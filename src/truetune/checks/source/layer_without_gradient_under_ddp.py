"""A model wrapped in DDP has a layer that no forward pass uses: the second step stops with an error.

## What it does
Looks at classes derived from `nn.Module` or `LightningModule` whose object is wrapped in DistributedDataParallel, given
to `accelerator.prepare`, or trained by Lightning with `strategy="ddp"`. It is an error if the constructor creates a
layer with weights (`self.aspect = nn.Linear(...)`) that no code of the project uses, and a warning if training uses it
only for some batches (`if mask.any():`). Not reported: `find_unused_parameters`, frozen weights, and layers that are
accessed by name or all together.

## Why it is bad
In each backward pass DDP waits for the gradient of every weight. The unused layer never gets one, so the averaging of
the first step never ends, and the second step stops with "Expected to have finished reduction in the prior iteration".
On one GPU the script works.

## Example
```python
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 64)
        self.score = nn.Linear(64, 1)
        self.topic = nn.Linear(64, 9)

    def forward(self, x):
        return self.score(self.body(x))


torch.distributed.init_process_group("nccl")
model = DistributedDataParallel(Scorer())
```

## Use instead
```python
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 64)
        self.score = nn.Linear(64, 1)

    def forward(self, x):
        return self.score(self.body(x))


torch.distributed.init_process_group("nccl")
model = DistributedDataParallel(Scorer())
```

## Fix safety
Removing the layer changes no output. Saved weights that contain it no longer fit a model without it.

## References
- docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html: `find_unused_parameters`
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
from truetune.checks.source.evidence.model_calls_bypassing_ddp_or_fsdp import (
    constructions_of_model,
    models_given_to_wrappers,
)
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    commands_that_launch_several_processes,
)
from truetune.source.parsed_source_file import Module

LAYERS = re.compile(
    r"torch\.nn\.(?:modules\.\w+\.)?(?:Linear|Bilinear|Embedding(?:Bag)?|Conv\w+|LSTM|GRU|RNN|LayerNorm|RMSNorm"
    r"|BatchNorm\w+|MultiheadAttention|Transformer\w*)"
)
"""Layers that have weights"""
CONTAINERS = re.compile(r"torch\.nn\.(?:modules\.\w+\.)?(?:Sequential|ModuleList|ModuleDict)")
"""They have the weights of the layers that they are given"""
ASKS_THE_BATCH = re.compile(r"\.(?:any|all|sum|numel|count_nonzero|nonzero|item)\(")
"""Conditions on the values of tensors; those on settings and on the mode are the same for each batch"""
OUTSIDE_OF_TRAINING = re.compile(
    r"(?:validation|test|predict|eval|generate|configure_optimizers|save|load|export|__init__)"
)
"""Begins of names of methods that make no loss of training"""
REACHED_OTHERWISE = re.compile(
    r"find_unused_parameters|requires_grad|_ddp_params_and_buffers_to_ignore|_set_static_graph|static_graph"
    r"|getattr\(|__dict__|\.children\(|\.named_children\(|\.modules\(|\.named_modules\(|get_submodule|deepspeed"
    r"|DistributedDataParallelKwargs|DDPStrategy"
)
"""Signs that DDP is told of such layers, or that code reaches layers without naming them"""
MAX_CLASSES = 20
"""Classes of one file that are judged. Chosen, not measured: files of models have fewer"""


def _wrapped_classes_and_wrapping_places(module: Module) -> Iterator[tuple[ast.ClassDef, ast.AST]]:
    """The classes of which an object is wrapped, with the place that wraps it."""
    for model in models_given_to_wrappers(module):
        for node in constructions_of_model(module, model):
            owners = module.flow.origins(node.func) if isinstance(node, ast.Call) else ()
            for owner in owners:
                if isinstance(owner.node, ast.ClassDef):
                    yield owner.node, model
    for call in module.calls("*ightning*.Trainer"):
        devices = module.flow.value(call.argument(-1, "devices"))
        if module.flow.value(call.argument(-1, "strategy")) == "ddp" and devices != 1:
            for class_node in module.nodes(ast.ClassDef):
                yield class_node, call.node
            for class_node in _lightning_modules_of_other_files_trained_here(module):
                yield class_node, call.node


def _lightning_modules_of_other_files_trained_here(module: Module) -> Iterator[ast.ClassDef]:
    """The classes of other files that a script's `trainer.fit(...)` trains."""
    for call in module.methods("fit"):
        model = call.argument(0, "model")
        for made in constructions_of_model(module, model) if model is not None else ():
            owners = module.flow.origins(made.func) if isinstance(made, ast.Call) else ()
            for owner in owners:
                if isinstance(owner.node, ast.ClassDef) and not module.holds(owner.node):
                    yield owner.node


class LayerWithoutGradientUnderDdp(SourceRule):
    code = "SRC377"
    fault = Fault.WEIGHTS_REFUSED_BY_DDP_OR_FSDP
    symptoms = ("several-gpus",)
    severity = "error"
    looks_at = CodePlaces(
        "classes of models that are wrapped for several processes",
        _wrapped_classes_and_wrapping_places,
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        parts = module.self_and_files_run_together
        if any(REACHED_OTHERWISE.search(part.text) for part in parts):
            return
        wrapped = list(_wrapped_classes_and_wrapping_places(module))[:MAX_CLASSES]
        if not _is_meant_for_several_processes(module):
            return
        known: set[ast.AST] = set()
        for class_node, place in wrapped:
            for layer in _unread_layers(module, class_node):
                if layer in known:
                    continue
                known.add(layer)
                yield self._finding_on_unread_layer(class_node, layer, place)
            for layer, branch in _layers_read_conditionally(module, class_node):
                if layer not in known:
                    known.add(layer)
                    yield self._finding_on_conditional_layer(class_node, layer, branch, place)

    def _finding_on_conditional_layer(
        self, class_node: ast.ClassDef, layer: ast.Assign, branch: ast.If, place: ast.AST
    ) -> Finding:
        """The finding on a layer that only some batches use."""
        module = self.subject
        name = ast.unparse(layer.targets[0])
        flag = (
            'set Trainer(strategy="ddp_find_unused_parameters_true")'
            if module.mentions("ightning")
            else "pass find_unused_parameters=True to DistributedDataParallel"
        )
        return self.finding(
            f"{name} of {class_node.name} is used only if `{ast.unparse(branch.test)}`: in a batch where that is"
            " false it gets no gradient, DDP waits for it, and the next step stops",
            f"{flag}; or add 0.0 * sum(p.sum() for p in {name}.parameters()) to the loss of each batch",
            severity="warning",
            cases=[
                case_of_node(module, branch.test),
                case_of_node(module, layer),
                case_of_node(module, place),
            ],
        )

    def _finding_on_unread_layer(
        self, class_node: ast.ClassDef, layer: ast.Assign, place: ast.AST
    ) -> Finding:
        """The finding on one layer that nothing reads."""
        module = self.subject
        name = ast.unparse(layer.targets[0])
        return self.finding(
            f"{name} of {class_node.name} has weights that no forward pass uses: DDP waits for their gradients, and"
            " the second step stops (Expected to have finished reduction in the prior iteration)",
            f"remove {name}, use it in forward, or pass find_unused_parameters=True to DistributedDataParallel",
            cases=[case_of_node(module.home(layer), layer), case_of_node(module, place)],
        )


def _unread_layers(module: Module, class_node: ast.ClassDef) -> Iterator[ast.Assign]:
    """The layers that the constructor makes and nothing in the project reads."""
    bases = module.flow.bases(class_node)
    # Another base may read the layers that a class of its own makes.
    if len(class_node.bases) != 1 or not bases or not _base_class_calls_no_named_layer(bases[0]):
        return
    for statement in _unconditional_assignments_of_constructor(class_node):
        target = _attribute_set_to_single_layer(module, statement)
        if target is not None and not _is_attribute_read_or_named(module, target.attr):
            yield statement


def _layers_read_conditionally(
    module: Module, class_node: ast.ClassDef
) -> Iterator[tuple[ast.Assign, ast.If]]:
    """The layers that training reads only behind a condition on a batch, with the condition."""
    bases = module.flow.bases(class_node)
    if len(class_node.bases) != 1 or not bases or not _base_class_calls_no_named_layer(bases[0]):
        return
    for statement in _unconditional_assignments_of_constructor(class_node):
        target = _attribute_set_to_single_layer(
            module, statement
        ) or _attribute_set_to_layer_container(module, statement)
        reads = _attribute_reads_in_training(module, target.attr) if target is not None else []
        branches = [_enclosing_condition_on_batch(module, read, class_node) for read in reads]
        first = branches[0] if branches else None
        if first is not None and None not in branches:
            yield statement, first


def _attribute_set_to_layer_container(
    module: Module, statement: ast.Assign
) -> ast.Attribute | None:
    """The attribute of `self.score = nn.Sequential(nn.Linear(...), ...)`; None where anything else is set."""
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Attribute) or ast.unparse(target.value) != "self":
        return None
    if not isinstance(value, ast.Call) or not CONTAINERS.fullmatch(
        module.flow.name(value.func) or ""
    ):
        return None
    made = [part for part in ast.walk(value) if isinstance(part, ast.Call)]
    has_weights = any(LAYERS.fullmatch(module.flow.name(part.func) or "") for part in made)
    return target if has_weights else None


def _attribute_reads_in_training(module: Module, name: str) -> list[ast.Attribute]:
    """Where code reads an attribute of this name, but for evaluation, saving and the optimizer."""
    reads = []
    for part in module.self_and_files_run_together:
        for node in part.nodes(ast.Attribute):
            if node.attr != name or not isinstance(node.ctx, ast.Load):
                continue
            around = module.function_around(node)
            if around is None or not OUTSIDE_OF_TRAINING.match(around.name.lstrip("_")):
                reads.append(node)
    return reads


def _enclosing_condition_on_batch(
    module: Module, read: ast.AST, class_node: ast.ClassDef
) -> ast.If | None:
    """The condition on a batch around a place in a method of the class; None where there is none."""
    inner = read
    branch = None
    for parent in module.parents(read):
        asks = isinstance(parent, ast.If) and ASKS_THE_BATCH.search(ast.unparse(parent.test))
        if isinstance(parent, ast.If) and asks and inner in parent.body:
            branch = parent
        if parent is class_node:
            return branch
        inner = parent
    return None


def _unconditional_assignments_of_constructor(class_node: ast.ClassDef) -> Iterator[ast.Assign]:
    """What a class sets when an object is made, under no condition."""
    for method in class_node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            yield from (one for one in method.body if isinstance(one, ast.Assign))
            return


def _attribute_set_to_single_layer(module: Module, statement: ast.Assign) -> ast.Attribute | None:
    """The attribute of `self.score = nn.Linear(...)`; None where anything else is set."""
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Attribute) or ast.unparse(target.value) != "self":
        return None
    called = module.flow.name(value.func) if isinstance(value, ast.Call) else None
    return target if LAYERS.fullmatch(called or "") else None


def _base_class_calls_no_named_layer(name: str) -> bool:
    """Does a base class of this name call no layer by a name of its own?"""
    return name.endswith(("nn.Module", "module.Module", ".LightningModule"))


def _is_attribute_read_or_named(module: Module, name: str) -> bool:
    """Does any code read an attribute of this name, or name it in a text?"""
    for part in module.self_and_files_run_together:
        attributes = (one for one in part.nodes(ast.Attribute) if one.attr == name)
        if any(isinstance(one.ctx, ast.Load) for one in attributes):
            return True
        if any(one.value == name for one in part.nodes(ast.Constant)):
            return True
    return False


def _is_meant_for_several_processes(module: Module) -> bool:
    """Is the script meant for several processes? One of accelerate alone may be meant for one GPU."""
    if any(
        True
        for part in module.self_and_files_run_together
        for _ in part.calls("torch.*.DistributedDataParallel")
    ):
        return True
    return module.mentions("ightning") or any(
        commands_that_launch_several_processes(Path(module.path))
    )
