"""What a trainer has put around a model's forward, put around another model's."""

from __future__ import annotations

import types
from typing import Any


def copy_forward_patch(model: Any, other: Any) -> None:
    """Give `other` the forward that stands on the instance `model`, if any, with every hold on `model` moved over.

    Trainers replace a model's forward by a closure over its former one (a fused loss, say).
    """
    forward = vars(model).get("forward")
    if forward is None:
        return
    seen: dict[int, Any] = {id(model): other, id(model.config): other.config}
    text, other_text = model.config.get_text_config(), other.config.get_text_config()
    seen[id(text)] = other_text
    for (name, module), (_, twin) in zip(
        model.named_children(), other.named_children(), strict=False
    ):
        if hasattr(other, name):
            seen[id(module)] = getattr(other, name, twin)
    head, twin = model.get_output_embeddings(), other.get_output_embeddings()
    if head is not None:
        seen[id(head)] = twin
    other.forward = _copy_onto(forward, seen, 0)


def _copy_onto(value: Any, seen: dict[int, Any], depth: int) -> Any:
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, types.MethodType):
        owner = _copy_onto(value.__self__, seen, depth)
        if owner is value.__self__:
            return value
        function = value.__func__
        own = getattr(type(owner), function.__name__, None)
        if function.__closure__ is None and own is not None:
            return types.MethodType(own, owner)
        return types.MethodType(_copy_onto(function, seen, depth + 1), owner)
    if isinstance(value, types.FunctionType) and value.__closure__ and depth < 8:
        cells = tuple(
            types.CellType(_copy_onto(cell.cell_contents, seen, depth + 1))
            for cell in value.__closure__
        )
        made = types.FunctionType(
            value.__code__, value.__globals__, value.__name__, value.__defaults__, cells
        )
        made.__kwdefaults__ = value.__kwdefaults__
        made.__dict__.update(value.__dict__)
        return made
    return value
