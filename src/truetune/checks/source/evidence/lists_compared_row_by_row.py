"""Finds two lists whose rows are compared or joined one by one, such as answers and references, and
whether one holds generated answers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.parsed_source_file import Module

GENERATES = frozenset(
    (
        "generate",
        "batch_decode",
        "decode",
        "chat",
        "predict",
        "create",
        "completion",
        "invoke",
        "argmax",
    )
)
"""Methods that give answers or classes, or make texts of them"""


SCORES = (
    "sklearn.metrics.*_score",
    "sklearn.metrics.classification_report",
    "sklearn.metrics.confusion_matrix",
    "sklearn.metrics.precision_recall_fscore_support",
    "sklearn.metrics.mean_*_error",
)


class ListsTakenTogether(NamedTuple):
    """Two lists whose rows are taken together, one by one."""

    node: ast.AST
    sides: tuple[ast.expr, ...]


def lists_compared_row_by_row(module: Module) -> Iterator[ListsTakenTogether]:
    """Lists that are compared row by row: in files that generate, and by scikit-learn's scores in
    any.
    """
    yield from sides_of_sklearn_scores(module)
    if not _does_file_generate_or_classify(module):
        return
    for call in module.calls("zip"):
        if len(call.args) > 1 and not any(isinstance(one, ast.Starred) for one in call.args):
            yield ListsTakenTogether(call.node, call.args)
    for call in module.methods("compute", "compute_score", "add_batch"):
        predictions = call.keywords.get("predictions")
        references = call.keywords.get("references")
        if predictions is not None and references is not None:
            yield ListsTakenTogether(call.node, (predictions, references))
    yield from _lists_added_as_columns(module)


def sides_of_sklearn_scores(module: Module) -> Iterator[ListsTakenTogether]:
    """The sides of scikit-learn's scores: `accuracy_score(gold, predicted)`."""
    for call in module.calls(*SCORES):
        gold, predicted = call.argument(0, "y_true"), call.argument(1, "y_pred")
        if gold is not None and predicted is not None:
            yield ListsTakenTogether(call.node, (predicted, gold))


def is_given_to_sklearn_score(module: Module, pair: ListsTakenTogether) -> bool:
    """Is a pair given to one of scikit-learn's scores?"""
    return isinstance(pair.node, ast.Call) and module.flow.call(pair.node).named(*SCORES)


def _lists_added_as_columns(module: Module) -> Iterator[ListsTakenTogether]:
    """Columns that are put beside the rows of a table, with that table."""
    for call in module.methods("add_column"):
        column = call.argument(1, "column")
        if call.receiver is not None and column is not None:
            yield ListsTakenTogether(call.node, (column, call.receiver))
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and _stores_list_as_column(module, target, node.value):
            yield ListsTakenTogether(node, (node.value, target.value))


def _does_file_generate_or_classify(module: Module) -> bool:
    """Does the file generate text, by a model, a pipeline, an engine or a server, or decide on classes?"""
    if any(module.calls("transformers.pipeline", "vllm.LLM")):
        return True
    if any(module.calls("transformers.*.from_pretrained")) and any(module.methods("argmax")):
        return True
    return any(module.methods("generate", "batch_decode", "create", "chat"))


def one_side_is_generated(module: Module, pair: ListsTakenTogether) -> bool:
    """Is one of the sides made by a generation, itself or in a function of the file that takes
    part?
    """
    parts = (part for side in pair.sides for part in backward_slice(module, side))
    return any(_calls_or_names_generation(module, part) for part in parts)


def _calls_or_names_generation(module: Module, part: ast.AST) -> bool:
    """Is this node a call that generates, or the name of a function with one?"""
    if isinstance(part, ast.Call):
        maker = module.flow.producing_call(part.func)
        is_pipeline = maker is not None and maker.named("transformers.pipeline")
        return is_pipeline or module.flow.call(part).method in GENERATES
    function = (
        module.flow.function_that_expression_names(part) if isinstance(part, ast.Name) else None
    )
    if function is None:
        return False
    called = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(isinstance(one, ast.Attribute) and one.attr in GENERATES for one in called)


def _stores_list_as_column(module: Module, target: ast.Subscript, value: ast.expr) -> bool:
    """Does an assignment put a list into a table as a column: `frame["prediction"] = answers`?"""
    if not isinstance(target.slice, ast.Constant) or not isinstance(target.slice.value, str):
        return False
    is_table = any(
        isinstance(origin.node, ast.Call)
        and any(name.startswith("pandas.") for name in module.flow.names(origin.node.func))
        for origin in module.flow.origins(target.value)
    )
    # A series keeps its index, by which pandas puts it in place; a list is taken as it stands.
    nodes = [origin.node for origin in module.flow.origins(value)]
    lists = [one for one in nodes if isinstance(one, ast.List | ast.ListComp)]
    return is_table and bool(lists)
