"""Finds the IterableDatasets of a script's own that a loader reads, and the code that makes their rows.

The trade-off: the code is that of the class, of its bases in the files, and of the functions that they call. What an
object does that the class is given is seen only where that object is made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.source.evidence.metric_functions_and_token_shifts import (
    with_called_functions,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.parsed_source_file import Module


@dataclass(frozen=True, slots=True)
class OwnStream:
    """An IterableDataset of the files, with the call that makes the rows of it."""

    definition: ast.ClassDef
    made: ast.Call

    def text_of_code(self, module: Module) -> str:
        """The code that makes the rows, without the name of the class, which says nothing of it.

        Args:
            module: The file that is judged.

        Returns:
            The texts of the class, of its bases, and of the functions that they call.
        """
        classes = list(_with_bases(module, self.definition))
        code = with_called_functions(module, classes)
        return "\n".join(map(module.text_of, code)).replace(self.definition.name, "")

    def texts_of_arguments(self, module: Module) -> list[str]:
        """What the stream is given, and what that is computed from."""
        arguments = [*self.made.args, *(keyword.value for keyword in self.made.keywords)]
        parts = [part for one in arguments for part in backward_slice(module, one)]
        return [ast.unparse(part) for part in parts if isinstance(part, ast.expr)]


def own_iterable_dataset_of_rows(module: Module, rows: ast.expr) -> OwnStream | None:
    """The IterableDataset of the files that some rows are.

    Args:
        module: The file that is judged.
        rows: What a loader is given.

    Returns:
        None for other rows.
    """
    for origin in module.flow.origins(rows):
        if not isinstance(origin.node, ast.Call):
            continue
        definition = module.flow.class_of_object(origin.node.func)
        if definition is not None and _is_iterable_dataset_class(module, definition):
            return OwnStream(definition, origin.node)
    return None


def _is_iterable_dataset_class(module: Module, definition: ast.ClassDef) -> bool:
    """Is a class an IterableDataset of torch?"""
    return any(base.endswith("IterableDataset") for base in module.flow.bases(definition))


def _with_bases(module: Module, definition: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """A class and those of the files that it is derived from, each once."""
    seen: set[ast.ClassDef] = set()
    waiting = [definition]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        yield one
        bases = map(module.flow.class_of_object, one.bases)
        waiting += [base for base in bases if base is not None]
