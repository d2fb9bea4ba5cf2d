"""Finds scores of pairs that a script divides for the evaluator alone, and trains as they are.

How it works: the evaluator's scores are a list of `score / 5.0`, the script reads rows at one place only, so that both
come from the same kind of file, and nothing else in it divides.

The trade-off: any other division, also of something else, ends the search. So some faults are not found, and a script
that divides its labels in another way is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

EVALUATORS = ("sentence_transformers.*EmbeddingSimilarityEvaluator",)
READERS = (
    "open",
    "datasets.load_dataset",
    "datasets.Dataset.from_csv",
    "datasets.Dataset.from_json",
    "datasets.Dataset.from_parquet",
    "pandas.read_*",
    "polars.read_*",
)
FORMATS = ("csv", "json", "parquet", "text")
"""Names by which `load_dataset` reads files of the user: of rows of the hub it may be known that they are divided"""
SCALERS = ("normalize", "normalise", "rescale", "MinMax", "minmax", "interp(", "clip(")
"""Words by which code brings scores to another scale without a division that stands in the file"""


class DividedScores(NamedTuple):
    """Scores that the evaluator gets divided."""

    node: ast.expr
    by: float


def scores_divided_for_evaluation_alone(module: Module) -> DividedScores | None:
    """The scores that a script divides for its evaluator alone; None where it divides others, or none."""
    divided = next(_divided_scores_of_evaluators(module), None)
    if divided is None or module.mentions(*SCALERS) or not _reads_rows_at_one_place(module):
        return None
    own = {id(part) for part in ast.walk(divided.node)}
    homes = module.self_and_files_run_together
    others = (node for home in homes for node in _scalings(home, divided.by) if id(node) not in own)
    return None if any(True for _ in others) else divided


def _divided_scores_of_evaluators(module: Module) -> Iterator[DividedScores]:
    """The scores that evaluators get as `[score / 5.0 for score in scores]`."""
    for call in module.calls(*EVALUATORS):
        scores = call.argument(2, "scores")
        nodes = [] if scores is None else [origin.node for origin in module.flow.origins(scores)]
        for node in nodes:
            made = node.elt if isinstance(node, ast.ListComp) else None
            if isinstance(made, ast.BinOp) and isinstance(made.op, ast.Div):
                by = module.flow.value(made.right)
                if isinstance(by, int | float) and by > 1:
                    yield DividedScores(made, by)


def _reads_rows_at_one_place(module: Module) -> bool:
    """Is there one call that reads rows, of files of the user?"""
    calls = [
        call
        for home in module.self_and_files_run_together
        for call in home.calls(*READERS)
        if not _writes(home, call.argument(1, "mode"))
    ]
    if len(calls) != 1:
        return False
    name = module.flow.value(calls[0].argument(0, "path"))
    return not calls[0].named("datasets.load_dataset") or name in FORMATS


def _writes(module: Module, mode: ast.expr | None) -> bool:
    """Does a mode of `open` write?"""
    text = module.flow.value(mode)
    return isinstance(text, str) and text[:1] in ("w", "a", "x")


def _scalings(module: Module, by: float) -> Iterator[ast.AST]:
    """The divisions of a file, but for joined paths, and its products with the inverse of a number."""
    operations: list[tuple[ast.AST, ast.operator, ast.expr]] = [
        *((node, node.op, node.right) for node in module.nodes(ast.BinOp)),
        *((node, node.op, node.value) for node in module.nodes(ast.AugAssign)),
    ]
    for node, operator, second in operations:
        value = second.value if isinstance(second, ast.Constant) else None
        is_path = isinstance(value, str) or isinstance(second, ast.JoinedStr)
        is_inverse = isinstance(value, float) and value * by == 1
        if (isinstance(operator, ast.Div) and not is_path) or (
            isinstance(operator, ast.Mult) and is_inverse
        ):
            yield node
