"""Finds the lists and dictionaries of a script that number labels: which name stands for 0, which
for 1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.errors import DataError
from truetune.source.parsed_source_file import Module, read_module

LABEL_VARIABLE = re.compile(
    r"label|class|name|categor|intent|sentiment|topic|tag|id2|2id|answers?$|options?$", re.I
)
"""Names that scripts give such lists"""
# Chosen, not measured: longer lists are vocabularies or class names that nobody keeps twice by hand.
MAX_LABEL_COUNT = 40
MAX_SIBLING_FILES = 40
"""Files of one folder that are read"""
# Of one file; scripts are shorter, and generated ones of megabytes would cost more than they tell.
MAX_SIBLING_BYTES = 200_000


class LabelOrder(NamedTuple):
    """Names by their number."""

    names: tuple[str, ...]
    """In lower case; the first is 0"""
    node: ast.AST
    module: Module


def label_orders(module: Module) -> Iterator[LabelOrder]:
    """The label names that a file numbers, in the order of their numbers: a list that is read by
    number, or `{0: "negative", 1: "positive"}`.
    """
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if len(node.targets) != 1 or not isinstance(target, ast.Name | ast.Attribute):
            continue
        name = target.id if isinstance(target, ast.Name) else target.attr
        if not LABEL_VARIABLE.search(name):
            continue
        names = _names_of_dictionary(node.value)
        if names is None and _is_read_by_number(module, name):
            names = _distinct_texts_of_list(node.value)
        if names is not None and 2 <= len(names) <= MAX_LABEL_COUNT:
            yield LabelOrder(names, node, module)


def _distinct_texts_of_list(value: ast.expr) -> tuple[str, ...] | None:
    """The texts of a list, if all are texts and different; None otherwise."""
    if not isinstance(value, ast.List | ast.Tuple):
        return None
    return _lowercase_texts_if_all_distinct([_constant_text(element) for element in value.elts])


def _names_of_dictionary(value: ast.expr) -> tuple[str, ...] | None:
    """The names of `{0: "a", 1: "b"}` or `{"a": 0, "b": 1}`, by their number."""
    if not isinstance(value, ast.Dict):
        return None
    pairs = list(zip(value.keys, value.values, strict=True))
    numbered = {_constant_number(key): _constant_text(name) for key, name in pairs}
    if None in numbered:
        numbered = {_constant_number(name): _constant_text(key) for key, name in pairs}
    if len(numbered) != len(pairs) or set(numbered) != set(range(len(pairs))):
        return None
    return _lowercase_texts_if_all_distinct([numbered[number] for number in range(len(pairs))])


def _lowercase_texts_if_all_distinct(texts: list[str | None]) -> tuple[str, ...] | None:
    """The texts in lower case, where all are texts and no two are the same."""
    names = tuple(text.strip().casefold() for text in texts if text is not None)
    return names if len(set(names)) == len(texts) else None


def _constant_text(node: ast.expr | None) -> str | None:
    """The text that a node spells; None for any other node."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def _constant_number(node: ast.expr | None) -> int | None:
    """The whole number that a node spells; None for any other node."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_read_by_number(module: Module, name: str) -> bool:
    """Is a list read by an index that varies, searched for an item, or counted through?"""
    for node in module.nodes(ast.Subscript):
        is_it = getattr(node.value, "id", getattr(node.value, "attr", "")) == name
        if is_it and not isinstance(node.slice, ast.Constant | ast.Slice | ast.UnaryOp):
            return True
    if any(_has_name(call.receiver, name) for call in module.methods("index")):
        return True
    return any(call.args and _has_name(call.args[0], name) for call in module.calls("enumerate"))


def _has_name(node: ast.expr | None, name: str) -> bool:
    """Is it a name, or an attribute, that is called so?"""
    return getattr(node, "id", getattr(node, "attr", None)) == name


def label_orders_of_same_names_beside(
    module: Module, names: frozenset[str]
) -> Iterator[LabelOrder]:
    """The label names of the same set in the files of the same folder."""
    path = Path(module.path)
    siblings = sorted(path.parent.glob("*.py")) if path.parent.is_dir() else []
    for sibling in siblings[:MAX_SIBLING_FILES]:
        if sibling == path or not _file_spells_all_names(sibling, names):
            continue
        try:
            yield from label_orders(read_module(sibling))
        except DataError:
            continue


def _file_spells_all_names(path: Path, names: frozenset[str]) -> bool:
    """Does a file of modest size spell all the names?"""
    try:
        if path.stat().st_size > MAX_SIBLING_BYTES:
            return False
        text = path.read_text(encoding="utf-8", errors="replace").casefold()
    except OSError:
        return False
    return all(name in text for name in names)
