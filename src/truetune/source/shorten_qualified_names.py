"""Splits dotted names, and shortens those of libraries to one form.

A class has one name in rules, however a script imports it: libraries move their modules between releases and export
their classes at the top, so the modules between are left out. The price is that two classes of one name in different
modules of a library are one to us.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

LIBRARIES_WITH_SHORT_NAMES = (
    "transformers",
    "trl",
    "peft",
    "datasets",
    "accelerate",
    "unsloth",
)
"""Libraries whose names are written without the modules between: `trl.trainer.sft_trainer.SFTTrainer` is
`trl.SFTTrainer`"""


def shorten_library_name(name: str) -> str:
    """A qualified name without the modules inside a library of LIBRARIES_WITH_SHORT_NAMES."""
    parts = name.split(".")
    # A class begins with a capital; of a function the module is the top one, so only its last part is kept.
    if parts[0] not in LIBRARIES_WITH_SHORT_NAMES or len(parts) < 3:
        return name
    first = next((i for i, part in enumerate(parts) if i and part[:1].isupper()), len(parts) - 1)
    return ".".join((parts[0], *parts[first:]))


def root_and_attributes(node: ast.AST) -> tuple[ast.AST, list[str]]:
    """The expression that `x.y.z` begins with, and the attributes after it, in the order of the
    text.
    """
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return node, attributes[::-1]


def spelling_of_variable(node: ast.AST | None) -> str | None:
    """A variable as it is written, `model` or `self.model`; None for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    is_of_self = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"
    return f"self.{node.attr}" if isinstance(node, ast.Attribute) and is_of_self else None


def variables_set_by_target(target: ast.expr) -> frozenset[str]:
    """The variables that the target of an assignment sets, those of a tuple or list too; not the entries it sets."""
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return frozenset(name for part in parts if (name := spelling_of_variable(part)) is not None)


def variable_of_indexed_or_attribute(node: ast.expr) -> ast.expr:
    """The variable that an index or attribute is taken of: `out` of `out[0]` and `out.sequences`.
    `self.out` is a variable, and no part of `self`.
    """
    while isinstance(node, ast.Subscript | ast.Attribute) and spelling_of_variable(node) is None:
        node = node.value
    return node


def variable_of_entry(node: ast.expr) -> ast.expr:
    """The variable that an entry is taken of: `batch` of `batch["input_ids"]` and
    `batch.input_ids`; a variable itself.
    """
    is_part = isinstance(node, ast.Subscript | ast.Attribute) and spelling_of_variable(node) is None
    return node.value if isinstance(node, ast.Subscript | ast.Attribute) and is_part else node


def iterate_assigned_attributes(
    target: ast.expr, *, in_body: bool
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The attributes that a target sets: `self.x`, in the body of a class `x` too; where in a tuple each stands."""
    if isinstance(target, ast.Tuple):
        for i, item in enumerate(target.elts):
            for name, path in iterate_assigned_attributes(item, in_body=in_body):
                yield name, (i, *path)
    elif (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    ):
        yield target.attr, ()
    elif in_body and isinstance(target, ast.Name):
        yield target.id, ()
