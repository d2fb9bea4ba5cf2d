"""Dictionaries that are updated by each other have the entries of both, and are read in the end."""

from __future__ import annotations

import ast

import pytest

from truetune.source.evaluate_constant_expressions import resolve_dict_entries
from truetune.source.parsed_source_file import parse_module


@pytest.mark.parametrize("update", ["a.update(b); b.update(a)", "a.update(b); a.update(a)"])
def test_dictionaries_that_update_each_other(update: str) -> None:
    module = parse_module(f"a = {{'x': 1}}\nb = {{'y': 2}}\n{update}\nprint(a)\n", "train.py")
    printed = next(node for node in module.nodes(ast.Call) if ast.unparse(node) == "print(a)")
    entries = resolve_dict_entries(module.flow, printed.args[0])
    assert set(entries.by_name) == {"x", "y"}


def test_a_dictionary_that_its_own_function_updates() -> None:
    """Its function calls itself: what is set before is known, and that more may be there."""
    text = """
def flatten(tree):
    out = {'x': 1}
    for key, value in tree.items():
        out.update(flatten(value))
    return out

flatten(tree)
"""
    module = parse_module(text, "train.py")
    last_call = next(
        node for node in module.nodes(ast.Call) if ast.unparse(node) == "flatten(tree)"
    )
    entries = resolve_dict_entries(module.flow, last_call)
    assert set(entries.by_name) == {"x"}
    assert not entries.whole
