"""Modules made of a text, and notebooks made of cells."""

from __future__ import annotations

import ast
import json
from textwrap import dedent
from typing import Any

from truetune.source.parsed_source_file import Module, parse_module


def module(text: str, path: str = "train.py") -> Module:
    """A module of an indented text, which must parse."""
    made = parse_module(dedent(text), path)
    assert not made.broken
    return made


def last(made: Module) -> ast.expr:
    """The expression that the text ends in."""
    statement = made.tree.body[-1]
    assert isinstance(statement, ast.Expr)
    return statement.value


def notebook(*cells: str, indent: int = 1, ascii_only: bool = False, listed: bool = True) -> str:
    """A notebook with these code cells and one of Markdown before each."""
    written: list[dict[str, Any]] = []
    for cell in cells:
        source = cell.splitlines(keepends=True) if listed else cell
        written.append(
            {
                "cell_type": "markdown",
                "metadata": {},
                "source": ['# text with "source" and [brackets]\n'],
            }
        )
        written.append(
            {
                "cell_type": "code",
                "execution_count": None,
                "metadata": {},
                "outputs": [{"text": ["x"]}],
                "source": source,
            }
        )
    whole = {
        "cells": written,
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=indent, ensure_ascii=ascii_only) + "\n"
