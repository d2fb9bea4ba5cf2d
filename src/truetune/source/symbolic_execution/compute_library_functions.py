"""Computes the functions of Python and of libraries whose result follows from their arguments.

The trade-off: only those that settings and rows pass through on their way in scripts are known; the result of any
other stays opaque, and its call is in the trace.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.lists_and_dicts import update_dict
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Constant,
    Instance,
    Mapping,
    Option,
    Sequence,
    Value,
)

COMPUTED: dict[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "abs": abs,
    "round": round,
    "max": max,
    "min": min,
    "os.path.join": lambda *parts: "/".join(str(part) for part in parts),
    "os.path.basename": lambda path: str(path).rpartition("/")[2],
}
"""Computed where all arguments are constant"""
GIVES_ITS_ARGUMENT = (
    "dict",
    "vars",
    "dataclasses.asdict",
    "copy.copy",
    "copy.deepcopy",
    "omegaconf.OmegaConf.create",
    "omegaconf.OmegaConf.to_container",
    "omegaconf.OmegaConf.merge",
    "omegaconf.DictConfig",
    "pathlib.Path",
    "os.path.expanduser",
    "os.path.abspath",
    "typing.cast",
)
"""Functions that give back their (last, for `typing.cast`) argument, as another kind of object"""
MODEL_LOADS = ("*Model*.from_pretrained", "*Model*.from_config", "*For*LM.from_pretrained")
"""Calls whose result is a model, of which a copy is another object"""
NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace", "dict", "easydict.EasyDict", "box.Box")
"""Functions that make an object of their keyword arguments"""


def result_of_known_function(
    name: str, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.AST
) -> Value | None:
    """The result of a function of Python or a library; None if it is not one of those that are
    known.
    """
    if name in COMPUTED:
        return _compute_on_constants(COMPUTED[name], args, keywords, node)
    if name in ("list", "tuple", "set") and len(args) < 2:
        return _list_of_known_items(name, args, node)
    if not args:
        return _mapping_of_keywords(name, keywords, node)
    if name in ("os.getenv", "os.environ.get"):
        default = args[1] if len(args) > 1 else None
        return Option(str(constant_of(args[0])), default, node=node)
    if name == "len":
        return _length_of_known_value(args[0], node)
    if name in GIVES_ITS_ARGUMENT:
        return _argument_returned_or_copied(name, args, keywords, node)
    return None


def _mapping_of_keywords(name: str, keywords: dict[str, Value], node: ast.AST) -> Mapping | None:
    """The dictionary or namespace that a function makes of keyword arguments alone; None for any
    other function.
    """
    if name in NAMESPACES and keywords:
        return Mapping(dict(keywords), is_open="**" in keywords, node=node)
    return Mapping({}, node=node) if name == "dict" else None


def _compute_on_constants(
    function: Callable[..., Any], args: tuple[Value, ...], keywords: dict[str, Value], node: ast.AST
) -> Value | None:
    """The result of a function on constants; None if an argument is none. An option stays one,
    since a user may give another value.
    """
    if len(args) == 1 and isinstance(args[0], Option) and not keywords:
        option = args[0]
        default = None
        if option.default is not None:
            default = _compute_on_constants(function, (option.default,), {}, node)
        return Option(option.name, default, node=option.node)
    plain = [constant_of(one, with_defaults=False) for one in args]
    if keywords or not plain or any(one is NO_CONSTANT for one in plain):
        return None
    try:
        return Constant(function(*plain), node=node)
    except (ArithmeticError, TypeError, ValueError):
        return None


def _list_of_known_items(kind: str, args: tuple[Value, ...], node: ast.AST) -> Value | None:
    """`list(...)` of a list that is known."""
    if not args:
        return Sequence(kind, [], node=node)
    given = args[0]
    if isinstance(given, Sequence):
        return Sequence(kind, list(given.items), given.is_open, made_over=given, node=node)
    return None


def _length_of_known_value(given: Value, node: ast.AST) -> Value | None:
    """`len(...)` of a list or text that is known."""
    if isinstance(given, Sequence) and not given.is_open:
        return Constant(len(given.items), node=node)
    plain = constant_of(given, with_defaults=False)
    return Constant(len(plain), node=node) if isinstance(plain, str) else None


def _argument_returned_or_copied(
    name: str, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.AST
) -> Value | None:
    """The argument that a function returns, copied if it is a dictionary."""
    given = args[-1] if name == "typing.cast" else args[0]
    if name == "copy.deepcopy" and _is_result_of_model_load(given):
        # Its weights are others from here on: a reference that the policy's training leaves as it is.
        return None
    if isinstance(given, Instance) and name in ("vars", "dataclasses.asdict"):
        return Mapping(dict(given.attributes), node=node)
    if not isinstance(given, Mapping):
        return None if name == "dict" else given
    copied = Mapping(dict(given.entries), given.rest, given.is_open, node=given.node)
    for other in args[1:]:
        update_dict(copied, other, _set_entry_without_undo)
    for key, value in keywords.items():
        if name == "dict" and key != "**":
            copied.entries[key] = value
    return copied


def _is_result_of_model_load(value: Value) -> bool:
    """Is it, by one way back, the result of a load of a model?"""
    loads = [one.call_that_gave_origin for one in lineages_back_to_origins(value)]
    return any(load is not None and load.named(*MODEL_LOADS) for load in loads)


def _set_entry_without_undo(names: dict[Any, Value], key: Any, value: Value) -> None:
    """Set an entry of a copy, which no branch needs to take back."""
    names[key] = value
