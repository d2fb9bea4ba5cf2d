"""Finds the paths of files that a script opens for writing from their beginning."""

from __future__ import annotations

import ast

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

OPENERS = ("open", "io.open", "codecs.open", "jsonlines.open")


def path_opened_for_writing(module: Module, call: Call) -> ast.expr | None:
    """The path that a call opens for writing: of `open(path, "w")` or `path.open("w")`; None for
    any other call.

    Of a method it is the receiver, whatever that is: the caller has to check that it is a path.
    """
    if call.named(*OPENERS):
        path, mode = call.argument(0, "file"), call.argument(1, "mode")
    elif call.method == "open":
        path, mode = call.receiver, call.argument(0, "mode")
    else:
        return None
    value = module.flow.value(mode) if mode is not None else None
    return path if isinstance(value, str) and value.startswith("w") else None
