"""Finds an argmax or a softmax over the one output of a classifier: it is the same for each row.

How it works: all models that the file loads are classifiers with `num_labels=1`. The argmax or
softmax takes the logits of such a model, or the predictions that a trainer hands to
`compute_metrics`, as they are, along their last axis. Files with a loss or a prediction step of
their own, as reward models on pairs have, are left alone: their predictions have other axes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal, NamedTuple

from truetune.checks.source.evidence.metric_functions_and_token_shifts import (
    argument_or_attribute_of_trainer,
    with_called_functions,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.data_flow import Origin
from truetune.source.parsed_source_file import Module

LOADS = ("transformers.*For*.from_pretrained", "transformers.*For*.from_config")
CLASSIFIERS = ("transformers.*ForSequenceClassification.from_pretrained",)
TRAINERS = ("transformers.Trainer",)
OWN_STEPS = frozenset(("compute_loss", "prediction_step"))
REDUCTIONS: dict[str, Literal["argmax", "softmax"]] = {
    "numpy.argmax": "argmax",
    "torch.argmax": "argmax",
    "torch.softmax": "softmax",
    "torch.nn.functional.softmax": "softmax",
    "scipy.special.softmax": "softmax",
}
METHODS = ("argmax", "softmax")
KEEPING_METHODS = ("float", "cpu", "numpy", "detach", "to", "cuda")
KEEPING_FUNCTIONS = ("numpy.array", "numpy.asarray", "torch.tensor", "torch.from_numpy")
RAW_OUTPUTS = ("predictions", "logits")
MAX_STEPS = 8
"""Names and conversions between the output and its reduction; two or three"""


class ReductionOverOneOutput(NamedTuple):
    """An argmax or a softmax over one output."""

    kind: Literal["argmax", "softmax"]
    call: Call
    load: Call
    """What loads the classifier"""


def reductions_over_one_output(module: Module) -> Iterator[ReductionOverOneOutput]:
    """The argmax and softmax calls of a file over the one output of its classifier."""
    load = _classifier_with_one_output(module)
    if load is None:
        return
    metrics = _metric_functions(module)
    for call in module.all_calls:
        kind = _kind_of_reduction(call)
        if kind is None:
            continue
        is_method = call.method in METHODS and not call.named(*REDUCTIONS)
        output = call.receiver if is_method else next(iter(call.args), None)
        axis = call.keywords.get("axis") or call.argument(0 if is_method else 1, "dim")
        if output is None or axis is None or module.flow.value(axis) not in (-1, 1):
            continue
        if _is_raw_output(module, output, metrics):
            yield ReductionOverOneOutput(kind, call, load)


def _classifier_with_one_output(module: Module) -> Call | None:
    """The load of the classifier with one output that is the only model of the file; else None."""
    if any(any(part.calls("trl.*")) for part in module.self_and_files_run_together):
        return None
    if any(one.name in OWN_STEPS for one in module.nodes(ast.FunctionDef)):
        return None
    loads = [call for part in module.self_and_files_run_together for call in part.calls(*LOADS)]
    if not loads or not all(_has_one_output(module, call) for call in loads):
        return None
    return next((call for call in loads if call.node in set(module.nodes(ast.Call))), None)


def _has_one_output(module: Module, load: Call) -> bool:
    """Is a classifier loaded with one output?"""
    count = module.flow.value(load.keywords.get("num_labels"))
    is_one = count == 1 and not isinstance(count, bool)
    return is_one and load.named(*CLASSIFIERS) and not load.open


def _metric_functions(module: Module) -> list[ast.AST]:
    """The functions that trainers of the file call with predictions, with those they call."""
    nodes = (
        argument_or_attribute_of_trainer(module, call, "compute_metrics")
        for call in module.calls(*TRAINERS)
    )
    functions = [
        module.flow.function_that_expression_names(one) for one in nodes if one is not None
    ]
    return with_called_functions(module, [one for one in functions if one is not None])


def _kind_of_reduction(call: Call) -> Literal["argmax", "softmax"] | None:
    """Is it an argmax or a softmax? None for other calls."""
    for name, kind in REDUCTIONS.items():
        if call.named(name):
            return kind
    if call.method == "argmax":
        return "argmax"
    return "softmax" if call.method == "softmax" else None


def _is_raw_output(
    module: Module, node: ast.expr, metrics: list[ast.AST], steps: int = MAX_STEPS
) -> bool:
    """Is it what the model gave, with its last axis as it was?"""
    if steps == 0:
        return False
    if isinstance(node, ast.Attribute) and node.attr in RAW_OUTPUTS:
        return True
    if isinstance(node, ast.Name):
        origins = list(module.flow.origins(node))
        return bool(origins) and all(
            _is_origin_raw_model_output(module, one, metrics, node, steps) for one in origins
        )
    kept = _subexpressions_with_axes_unchanged(module, node)
    return bool(kept) and all(_is_raw_output(module, one, metrics, steps - 1) for one in kept)


def _subexpressions_with_axes_unchanged(module: Module, node: ast.expr) -> list[ast.expr]:
    """What an expression gives on with its axes as they are: both branches, the first of a tuple, or
    what a conversion is given; empty for others.
    """
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Subscript):
        is_first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
        return [node.value] if is_first else []
    if not isinstance(node, ast.Call):
        return []
    call = module.flow.call(node)
    if call.named(*KEEPING_FUNCTIONS):
        return list(call.args[:1])
    if call.method not in KEEPING_METHODS or call.receiver is None:
        return []
    return [call.receiver]


def _is_origin_raw_model_output(
    module: Module, origin: Origin, metrics: list[ast.AST], name: ast.Name, steps: int
) -> bool:
    """Is what a name stands for the model's output: also the first of the two that
    `compute_metrics` is given?
    """
    if origin.element or origin.node is name:
        return False
    if isinstance(origin.node, ast.arg):
        function = module.scopes.parent.get(module.scopes.parent.get(origin.node) or origin.node)
        return function in metrics and origin.path[:1] == (0,)
    is_whole = isinstance(origin.node, ast.expr) and not origin.path
    return (
        is_whole
        and isinstance(origin.node, ast.expr)
        and (_is_raw_output(module, origin.node, metrics, steps - 1))
    )
