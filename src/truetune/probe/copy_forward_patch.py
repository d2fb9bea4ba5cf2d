"""Copies what a trainer has put around a model's forward onto another model of the same class.

Trainers and Liger replace a model's `forward` on the instance by a closure over its former one (a fused loss, a shared
embedding, chunked logits). A miniature that is built again has the plain forward, and so would not be trained by what
the run trains with. The closure is copied with every hold on the first model moved over to the second.

Trade-off: cells of closures are followed, global variables and attributes of foreign objects are not. A patch that
keeps its model there still calls the first model; the law on the loss then compares unlike things and says so.
"""

from __future__ import annotations

import types
from typing import Any

# Closures in closures that are followed. Chosen, not measured: patches are nested a few times (a trainer's around
# accelerate's around the class's). A bound is needed, since a closure may hold itself.
MAX_DEPTH = 8


def copy_forward_patch(model: Any, other: Any) -> None:
    """Give `other` the forward that stands on the instance `model`, if any, with every hold on `model` moved over.

    Args:
        model: a model of transformers, perhaps with a `forward` of its own in its `__dict__`.
        other: another one of its class; its children have the same names.
    """
    forward = vars(model).get("forward")
    if forward is None:
        return
    # By identity: what the copied closure must hold instead of what the first one holds.
    replacements: dict[int, Any] = {id(model): other, id(model.config): other.config}
    text, other_text = model.config.get_text_config(), other.config.get_text_config()
    replacements[id(text)] = other_text
    for (name, module), (_, counterpart) in zip(
        model.named_children(), other.named_children(), strict=False
    ):
        # Children by their name: a Llama that stands for another class lacks some.
        if hasattr(other, name):
            replacements[id(module)] = getattr(other, name, counterpart)
    head, other_head = model.get_output_embeddings(), other.get_output_embeddings()
    if head is not None:
        replacements[id(head)] = other_head
    other.forward = _copy_with_model_references_replaced(forward, replacements, 0)


def _copy_with_model_references_replaced(
    value: Any, replacements: dict[int, Any], depth: int
) -> Any:
    """A value with all that it holds of the first model replaced: itself where it holds nothing."""
    if id(value) in replacements:
        return replacements[id(value)]
    if isinstance(value, types.MethodType):
        return _copy_method(value, replacements, depth)
    if isinstance(value, types.FunctionType) and value.__closure__ and depth < MAX_DEPTH:
        return _copy_closure(value, replacements, depth)
    return value


def _copy_method(method: types.MethodType, replacements: dict[int, Any], depth: int) -> Any:
    """A bound method, bound to the other model's counterpart of its object."""
    owner = _copy_with_model_references_replaced(method.__self__, replacements, depth)
    if owner is method.__self__:
        return method
    function = method.__func__
    own = getattr(type(owner), function.__name__, None)
    # The miniature may be of another class (a Llama instead of what can't be shrunk): its own method is right there.
    if function.__closure__ is None and own is not None:
        return types.MethodType(own, owner)
    return types.MethodType(
        _copy_with_model_references_replaced(function, replacements, depth + 1), owner
    )


def _copy_closure(
    function: types.FunctionType, replacements: dict[int, Any], depth: int
) -> types.FunctionType:
    """A function of the same code over cells of its own.

    The cells must be new ones: writing into those of the first function would change the run's own model.
    """
    cells = tuple(
        types.CellType(
            _copy_with_model_references_replaced(cell.cell_contents, replacements, depth + 1)
        )
        for cell in function.__closure__ or ()
    )
    copied = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__dict__.update(function.__dict__)
    return copied
