"""In which dtype the weights are that a script hands to an optimizer."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from truetune.source.module import Module
from truetune.source.resolved_calls import Call


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
DEPTH = 8


def may_shard(text: str) -> bool:
    """May the weights be sharded, which keeps a float32 copy of them?"""
    return (
        "Accelerator" in text
        and re.search("fsdp|deepspeed|fully_?sharded", text, re.IGNORECASE) is not None
    )


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
