"""In which dtype the weights are that a script hands to an optimizer."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from truetune.checks.source.evidence.logprob_model_uses import model_source
from truetune.source.module import Module
from truetune.source.resolved_calls import Call
from truetune.source.script_preparation import frozen_objects


class WeightDtype(NamedTuple):
    """A dtype of 16 bits, as code names it."""

    names: frozenset[str]
    method: str
    """The method of a model that casts it so"""


BFLOAT16 = WeightDtype(frozenset(("torch.bfloat16", "bfloat16")), "bfloat16")
FLOAT16 = WeightDtype(frozenset(("torch.float16", "torch.half", "float16")), "half")
WIDE = frozenset(("torch.float32", "float32", "torch.float"))
OTHERS = WIDE | BFLOAT16.names | FLOAT16.names
CASTS = frozenset(("float", "double", BFLOAT16.method, FLOAT16.method))
WRAPPERS = ("torch.*.DistributedDataParallel", "torch.*.DataParallel", "torch.compile")
"""Calls whose result trains the very weights of the model that they are given"""
KEEP = ("to", "cuda", "cpu", "eval", "train", "requires_grad_")
"""Methods that give the model itself, in the dtype that it has where they name none"""
PARAMETER_METHODS = ("parameters", "named_parameters")
COPIES = CASTS | {"clone", "detach"}
DEPTH = 8
MASTER_WEIGHT_SIGNS = ("deepspeed", ".data.float(", ".data.to(", "cast_training_params")
"""Texts of what trains float32 copies of the weights, or casts some of them"""
FLOAT32_CASTS = (".float()", "float32")


def may_shard(text: str) -> bool:
    """May the weights be sharded, which keeps a float32 copy of them?"""
    return (
        "Accelerator" in text
        and re.search("fsdp|deepspeed|fully_?sharded", text, re.IGNORECASE) is not None
    )


def may_keep_float32_copies(module: Module, optimizer: Call) -> bool:
    """May what is trained be float32, or have a float32 copy: by sharding, or by casts of some weights?"""
    if module.mentions(*MASTER_WEIGHT_SIGNS):
        return True
    if any(may_shard(part.text) for part in module.with_linked):
        return True
    if not module.mentions(*FLOAT32_CASTS):
        return False
    # A part that is frozen leaves the others to be cast; a reference that is frozen as a whole says nothing of them.
    models = optimized_models(module, optimizer)
    return any(
        _may_be_part_of(module, frozen, model)
        for frozen in frozen_objects(module)
        for model in models
    )


def _may_be_part_of(module: Module, frozen: ast.expr, model: ast.expr) -> bool:
    """May what is frozen belong to a model? Not where another thing is known to have made it."""
    owner = _owner_of_parameter(module, frozen)
    sources = (model_source(module, owner), model_source(module, model))
    if any(source is None for source in sources):
        return True
    made = [source[0].node for source in sources if source is not None]
    return made[0] is made[1] or not all(isinstance(node, ast.Call) for node in made)


def _owner_of_parameter(module: Module, frozen: ast.expr) -> ast.expr:
    """The model whose part is frozen: `ref` of `for p in ref.parameters(): p.requires_grad = False`."""
    for around in module.parents(frozen):
        if isinstance(around, ast.For) and isinstance(frozen, ast.Name):
            names = {node.id for node in ast.walk(around.target) if isinstance(node, ast.Name)}
            if frozen.id in names:
                frozen = around.iter
                break
    if isinstance(frozen, ast.Call) and isinstance(frozen.func, ast.Attribute):
        if frozen.func.attr in PARAMETER_METHODS:
            frozen = frozen.func.value
    while isinstance(frozen, ast.Attribute):
        frozen = frozen.value
    return frozen


def optimized_models(module: Module, call: Call) -> list[ast.expr]:
    """The models whose parameters an optimizer is given, without those of adapters."""
    params = call.argument(0, "params")
    if params is None:
        return []
    expressions = (params, *(origin.node for origin in module.flow.origins(params)))
    attributes = [
        node
        for expression in expressions
        for node in ast.walk(expression)
        if isinstance(node, ast.Attribute)
    ]
    # Copies of the parameters have a dtype of their own.
    if any(node.attr in COPIES for node in attributes):
        return []
    owners = [node.value for node in attributes if node.attr in PARAMETER_METHODS]
    return [owner for owner in owners if "peft-model" not in module.flow.types(owner)]


def narrow_weights_source(module: Module, model: ast.expr, narrow: WeightDtype) -> ast.AST | None:
    """What gives the weights that dtype, where one thing made the model; through wrappers that train its weights."""
    part: ast.expr | None = model
    for _ in range(DEPTH):
        origins = module.flow.origins(part) if part is not None else ()
        node = origins[0].node if len(origins) == 1 else None
        if isinstance(node, ast.Attribute) and node.attr == "module":
            part = node.value
            continue
        if not isinstance(node, ast.Call):
            return None
        call = module.flow.call(node)
        dtypes = _dtypes_given(module, call)
        if call.method == narrow.method or dtypes & narrow.names:
            return node
        # The last cast decides: what stands before it is no longer seen by the optimizer.
        if call.method in CASTS or dtypes & OTHERS:
            return None
        part = _model_inside(call)
    return None


def _dtypes_given(module: Module, call: Call) -> set[str]:
    """The names or values of a call's arguments among which its dtype stands."""
    arguments = list(call.args)
    arguments += [call.keywords[name] for name in ("dtype", "torch_dtype") if name in call.keywords]
    return {module.flow.name(one) or str(module.flow.value(one)) for one in arguments}


def _model_inside(call: Call) -> ast.expr | None:
    """The model that a call returns again: wrapped, or moved; None where it makes another."""
    if call.named(*WRAPPERS):
        return call.argument(0, "module")
    return call.receiver if call.method in KEEP else None
