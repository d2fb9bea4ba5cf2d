"""Caches on the disk that keep the answers of models, and the keys that they are kept under.

The trade-off: the key is followed through the assignments of its own function alone, by the names
that stand in them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

KEPT_ON_DISK = (
    "diskcache.*",
    "shelve.open",
    "sqlitedict.SqliteDict",
    "json.load",
    "json.loads",
    "pickle.load",
    "joblib.load",
    "torch.load",
)
"""What gives a mapping that outlives the process"""
MODEL_PARAMETER = re.compile(
    r"(?:\w*_)?(?:model|ckpt|checkpoint|adapter)(?:_(?:name|path|id|dir|name_or_path))?", re.I
)
ABOUT_A_MODEL = re.compile(r"model|ckpt|checkpoint|adapter|argv|args\.", re.I)
"""What stands in the making of a cache that is one model's"""
MODEL_KEYWORDS = ("model", "model_name", "model_id")
MAX_HOPS = 4
"""Assignments that a key is followed through. Chosen, not measured: hash of a text of a list is three"""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class KeyWithoutModel(NamedTuple):
    """A cache whose key does not hold the model that is asked."""

    name: str
    model: str
    store: ast.AST
    made: ast.AST


def stores_in_mappings_also_read(module: Module) -> Iterator[tuple[Function, ast.Subscript]]:
    """The places where a function stores into a mapping that it reads as well: `cache[key] =
    answer`; each with its function.
    """
    functions: list[Function] = [
        *module.nodes(ast.FunctionDef),
        *module.nodes(ast.AsyncFunctionDef),
    ]
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                if _does_function_test_key_in_cache(function, node.targets[0].value):
                    yield function, node.targets[0]


def disk_caches_without_model_in_key(module: Module) -> Iterator[KeyWithoutModel]:
    """The caches on the disk that a function of the file fills under a key without its model."""
    for function, store in stores_in_mappings_also_read(module):
        call = _opening_of_disk_cache(module, store.value)
        model = _model_parameter_of_request(function)
        if call is None or model is None or ABOUT_A_MODEL.search(ast.unparse(call)):
            continue
        if model not in _names_key_is_made_of(function, store.slice):
            yield KeyWithoutModel(ast.unparse(store.value), model, store, call)


def _does_function_test_key_in_cache(function: Function, cache: ast.expr) -> bool:
    """Does a function test whether a key is in the cache?"""
    text = ast.unparse(cache)
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            if ast.unparse(node.comparators[0]) == text:
                return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{text}.get":
            return True
    return False


def _opening_of_disk_cache(module: Module, cache: ast.expr) -> ast.Call | None:
    """The call that opens a cache on the disk; None for other caches, and where several may be
    meant.
    """
    made = [origin.node for origin in module.flow.origins(cache)]
    calls = [node for node in made if isinstance(node, ast.Call)]
    is_kept = any(module.flow.call(call).named(*KEPT_ON_DISK) for call in calls)
    return calls[0] if is_kept and len(calls) == 1 else None


def _model_parameter_of_request(function: Function) -> str | None:
    """The parameter that names the model which a function asks; None where it asks none."""
    names = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
    for node in ast.walk(function):
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            given = keyword.value
            if keyword.arg in MODEL_KEYWORDS and isinstance(given, ast.Name) and given.id in names:
                return given.id if MODEL_PARAMETER.fullmatch(given.id) else None
    return None


def _names_key_is_made_of(function: Function, key: ast.expr) -> set[str]:
    """The names that a key is made of, through the assignments of its function."""
    names = _names_in(key)
    for _ in range(MAX_HOPS):
        more = {
            name
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and not names.isdisjoint(_names_in(node.targets[0]))
            and not isinstance(node.targets[0], ast.Subscript)
            for name in _names_in(node.value)
        }
        if more <= names:
            break
        names |= more
    return names


def _names_in(node: ast.AST) -> set[str]:
    """The names that stand in an expression."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
