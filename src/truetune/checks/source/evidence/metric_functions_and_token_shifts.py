"""Finds the functions that compute metrics from logits and labels, what they compare, and whether
they shift tokens.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal, TypeGuard

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.data_flow import Origin
from truetune.source.parsed_source_file import Module

Side = Literal["predictions", "labels"]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

ATTRIBUTES: dict[str, Side] = {"predictions": "predictions", "label_ids": "labels"}
"""Attributes of transformers' `EvalPrediction`"""
OF_PAIR: tuple[Side, Side] = ("predictions", "labels")
"""An `EvalPrediction` that is taken apart gives these two, in this order"""
METHODS_WITH_MODEL = ("compute_loss", "training_step", "prediction_step")
"""Methods that the Trainer gives its model and a batch"""
SAME_PLACES = frozenset(
    {
        "argmax",
        "reshape",
        "flatten",
        "view",
        "ravel",
        "astype",
        "cpu",
        "numpy",
        "detach",
        "to",
        "long",
        "int",
        "tolist",
        "squeeze",
        "copy",
        "clone",
        "masked_select",
        "item",
        "float",
        "bool",
    }
)
"""Methods after which a token stands where it stood, or all tokens of both sides moved alike"""
FUNCTIONS_OF_FIRST = ("numpy.*", "torch.*")
"""`np.argmax(x)`, `np.array(x)`, `torch.from_numpy(x)`: the side of the first argument"""
MOVES = ("roll", "pad", "narrow", "diff", "split", "concatenate", "cat")
"""Functions of theirs that may move tokens, after which the side is not followed"""
EQUALS = ("numpy.equal", "torch.eq", "torch.equal", "numpy.array_equal", "sklearn.metrics.*_score")
GATHERS = ("gather_for_metrics", "gather", "pad_across_processes")
"""Methods that collect the tokens of all processes, each where it stood"""
# Chosen, not measured: steps of numpy and torch between the logits and the comparison; a circle of names ends there.
DEPTH = 12
SHIFTS = ("roll", "narrow", "shift")
"""Functions that move tokens by other means than a slice"""
# Chosen: compute_metrics calls a helper, which calls another; recursion ends there.
CALLS = 4
"""Calls of the files' own functions that are followed from compute_metrics"""


def unshifted_label_comparisons(module: Module, function: ast.AST) -> Iterator[ast.AST]:
    """The comparisons of predictions with labels in which each token is compared with the one at
    its own position.
    """
    for node in ast.walk(function):
        if {
            prediction_or_label_side(module, part) for part in _compared_expressions(module, node)
        } == {
            "predictions",
            "labels",
        }:
            yield node


def first_label_comparison_of_picked_tokens(
    module: Module, functions: Sequence[ast.AST]
) -> ast.AST | None:
    """Where tokens that some functions pick by argmax are compared with labels; None where that is not seen."""
    nodes = (node for function in functions for node in ast.walk(function))
    if not any(picks_one_token_per_position(node) for node in nodes):
        return None
    for function in functions:
        comparison = next(unshifted_label_comparisons(module, function), None)
        if comparison is not None:
            return comparison
    return None


def _compared_expressions(module: Module, node: ast.AST) -> tuple[ast.expr, ...]:
    """The two expressions that a node compares; none where it compares nothing."""
    if (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], (ast.Eq, ast.NotEq))
        and len(node.ops) == 1
    ):
        return node.left, node.comparators[0]
    if not isinstance(node, ast.Call):
        return ()
    call = module.flow.call(node)
    if call.named(*EQUALS):
        first = call.argument(0, "y_true")
        second = call.argument(1, "y_pred")
    elif call.method == "eq":
        first, second = call.receiver, call.argument(0, "other")
    elif _is_torchmetrics_call(module, call):
        first, second = call.argument(0, "preds"), call.argument(1, "target")
    elif call.method in ("compute", "add_batch"):
        first, second = call.keywords.get("predictions"), call.keywords.get("references")
    else:
        return ()
    return (first, second) if first is not None and second is not None else ()


def _is_torchmetrics_call(module: Module, call: Call) -> bool:
    """Is a metric of torchmetrics called, or updated, with predictions and targets?"""
    owner = call.receiver if call.method in ("update", "forward") else call.node.func
    maker = module.flow.producing_call(owner) if owner is not None else None
    return maker is not None and maker.named("torchmetrics.*")


def prediction_or_label_side(module: Module, node: ast.expr, depth: int = 0) -> Side | None:
    """Is an expression made of the predictions or of the labels, token for token?

    None where that is not seen.
    """
    if depth > DEPTH:
        return None
    if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
        return ATTRIBUTES[node.attr]
    # Before names are followed: what is written as the model's output needs no origin.
    if is_output_of_labelled_pass(module, node):
        return "predictions"
    if _is_given_as_labels_or_ids(module, node):
        return "labels"
    if isinstance(node, ast.Subscript):
        return _prediction_or_label_side_of_index(module, node, depth)
    if isinstance(node, ast.Call):
        return _prediction_or_label_side_of_call(module, node, depth)
    if isinstance(node, (ast.Name, ast.Attribute, ast.IfExp)):
        sides = {
            _prediction_or_label_side_of_origin(module, node, origin, depth)
            for origin in module.flow.origins(node)
        }
        return sides.pop() if len(sides) == 1 else None
    return None


def is_output_of_labelled_pass(module: Module, node: ast.AST) -> bool:
    """Is it `outputs.logits` of a model that was given labels with its ids, and shifts them for its
    own loss?
    """
    if not (isinstance(node, ast.Attribute) and node.attr == "logits"):
        return False
    origins = module.flow.origins(node.value)
    calls = [one.node for one in origins if not one.path or _is_output_of_super_compute_loss(one)]
    return bool(calls) and all(
        isinstance(one, ast.Call) and next(_spellings_of_labels(module, one), None) is not None
        for one in calls
    )


def _is_output_of_super_compute_loss(origin: Origin) -> bool:
    """Is it the second result of `super().compute_loss(..., return_outputs=True)`?"""
    return origin.path == (1,) and _is_super_compute_loss(origin.node)


def _is_super_compute_loss(node: ast.AST) -> TypeGuard[ast.Call]:
    """Is it a call of the base class's loss: `super().compute_loss(model, inputs)`?

    The Trainer gives its model the whole batch, labels among it.
    """
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "super().compute_loss"


def _spellings_of_labels(module: Module, call: ast.Call) -> Iterator[str]:
    """How the labels are written that a call of a model is given: `labels`, `batch["labels"]`."""
    if _is_super_compute_loss(call):
        if len(call.args) > 1:
            yield from _spellings_of_column(call.args[1], "labels")
        return
    # `self(**batch)` is how a LightningModule calls its model.
    is_self = isinstance(call.func, ast.Name) and call.func.id == "self"
    is_model = "model" in module.flow.types(call.func) or _is_trainer_model_parameter(
        module, call.func
    )
    if not is_self and not is_model:
        return
    for keyword in call.keywords:
        if keyword.arg == "labels":
            yield ast.unparse(keyword.value)
        elif keyword.arg is None and isinstance(keyword.value, ast.Name):
            yield from _spellings_of_column(keyword.value, "labels")


def _spellings_of_column(batch: ast.expr, column: str) -> Iterator[str]:
    """The spellings of a column of a batch: `batch["labels"]` and `batch.labels`."""
    yield f"{ast.unparse(batch)}[{column!r}]"
    yield f"{ast.unparse(batch)}.{column}"


def _spellings_of_ids(module: Module, call: ast.Call) -> Iterator[str]:
    """How the ids are written that a call of a model is given beside labels: `batch["input_ids"]`."""
    if next(_spellings_of_labels(module, call), None) is None:
        return
    batches = [keyword.value for keyword in call.keywords if keyword.arg is None]
    batches += call.args[1:2] if _is_super_compute_loss(call) else []
    for batch in batches:
        yield from _spellings_of_column(batch, "input_ids")
    yield from (ast.unparse(word.value) for word in call.keywords if word.arg == "input_ids")


def _is_trainer_model_parameter(module: Module, called: ast.expr) -> bool:
    """Is it the model that the Trainer gives a method of a class of the files, such as
    `compute_loss`?
    """
    if not isinstance(called, ast.Name):
        return False
    method = module.scopes.of[called].node
    owner = module.scopes.parent.get(method)
    if not isinstance(method, ast.FunctionDef) or not isinstance(owner, ast.ClassDef):
        return False
    is_step = method.name in METHODS_WITH_MODEL and len(method.args.args) > 1
    if not is_step or method.args.args[1].arg != called.id:
        return False
    return any(name.endswith("Trainer") for name in module.flow.bases(owner))


def _is_given_as_labels_or_ids(module: Module, node: ast.expr) -> bool:
    """Is the expression, as it is written, what a model in the same function is given as labels, or
    as ids?

    A causal model that shifts its labels itself has them at the places of their ids.
    """
    if not isinstance(node, (ast.Name, ast.Subscript, ast.Attribute)):
        return False
    text = ast.unparse(node)
    calls = (
        part
        for part in ast.walk(function_or_statement_around(module, node))
        if isinstance(part, ast.Call)
    )
    if "labels" in text:
        return any(text in _spellings_of_labels(module, call) for call in calls)
    if "input_ids" in text:
        return any(text in _spellings_of_ids(module, call) for call in calls)
    return False


def function_or_statement_around(module: Module, node: ast.AST) -> ast.AST:
    """The function around a place; outside of functions, the outermost statement."""
    around = node
    for parent in module.parents(node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return parent
        if not isinstance(parent, ast.Module):
            around = parent
    return around


def _prediction_or_label_side_of_index(
    module: Module, node: ast.Subscript, depth: int
) -> Side | None:
    """The side of what an index takes: `logits[mask]` and `logits[0]` keep it; None for `logits[:,
    -1]`, which is one position and no longer all.
    """
    if isinstance(node.slice, ast.Tuple) and any(
        isinstance(module.flow.value(e), int) for e in node.slice.elts
    ):
        return None
    if any(isinstance(part, ast.BinOp) for part in ast.walk(node.slice)):
        # `logits[:, start - 1 :]` beside `labels[:, start:]` is a shift.
        return None
    index = module.flow.value(node.slice)
    if isinstance(node.value, ast.Name) and index in (0, 1):
        parameter = next((origin for origin in module.flow.origins(node.value)), None)
        if parameter is not None and _is_eval_prediction_parameter(module, parameter):
            return OF_PAIR[index]
    return prediction_or_label_side(module, node.value, depth + 1)


def _prediction_or_label_side_of_call(module: Module, node: ast.Call, depth: int) -> Side | None:
    """The side of what a call returns, where it keeps each place of its first argument, or of its
    receiver.
    """
    call = module.flow.call(node)
    if call.method in GATHERS and call.args:
        return prediction_or_label_side(module, call.args[0], depth + 1)
    if call.method in SAME_PLACES and call.receiver is not None:
        return prediction_or_label_side(module, call.receiver, depth + 1)
    # Of three arguments the first is the mask; a constant beside the tokens has no side.
    if call.named("numpy.where", "torch.where") and len(call.args) == 3:
        sides = {
            prediction_or_label_side(module, argument, depth + 1) for argument in call.args[1:]
        } - {None}
        return sides.pop() if len(sides) == 1 else None
    if call.args and _does_call_keep_token_positions(call):
        return prediction_or_label_side(module, call.args[0], depth + 1)
    return None


def _does_call_keep_token_positions(call: Call) -> bool:
    """Does a function of numpy or torch leave each value of its first argument where it was?"""
    return call.named(*FUNCTIONS_OF_FIRST) and not call.named(*(f"*.{name}" for name in MOVES))


def _prediction_or_label_side_of_origin(
    module: Module, name: ast.expr, origin: Origin, depth: int
) -> Side | None:
    """The side of what a name stands for, by one of its origins."""
    node, path = origin.node, origin.path
    if origin.element:
        return _prediction_or_label_side_of_zipped(module, node, path, depth)
    if isinstance(node, ast.arg):
        is_part = path[:1] in ((0,), (1,))
        return (
            OF_PAIR[path[0]]
            if is_part and _is_eval_prediction_parameter(module, Origin(node))
            else None
        )
    if node is name or not isinstance(node, ast.expr):
        return None
    if path and isinstance(node, ast.Call):
        gathered = _argument_of_gather_for_metrics(module, node, path)
        return None if gathered is None else prediction_or_label_side(module, gathered, depth + 1)
    # `logits, labels = pred.predictions, pred.label_ids` is followed by Flow; a tuple of outputs keeps its side.
    if path and isinstance(node, ast.Tuple | ast.List):
        return None
    return prediction_or_label_side(module, node, depth + 1)


def _argument_of_gather_for_metrics(
    module: Module, node: ast.Call, path: tuple[int, ...]
) -> ast.expr | None:
    """What one of the results of `gather_for_metrics((predictions, labels))` was before; None for
    any other call.
    """
    call = module.flow.call(node)
    argument = call.args[0] if call.method in GATHERS and call.args else None
    if not isinstance(argument, ast.Tuple | ast.List) or not 0 <= path[0] < len(argument.elts):
        return None
    return argument.elts[path[0]]


def _prediction_or_label_side_of_zipped(
    module: Module, node: ast.AST, path: tuple[int, ...], depth: int
) -> Side | None:
    """The side of one of the things that `zip(predictions, labels)` gives, or of an element of one
    of both.
    """
    if isinstance(node, ast.Call) and module.flow.name(node.func) == "zip":
        is_known = bool(path) and 0 <= path[0] < len(node.args)
        return prediction_or_label_side(module, node.args[path[0]], depth + 1) if is_known else None
    return (
        prediction_or_label_side(module, node, depth + 1)
        if isinstance(node, ast.expr) and not path
        else None
    )


def _is_eval_prediction_parameter(module: Module, origin: Origin) -> bool:
    """Is it the one parameter of a function, which a trainer gives predictions and labels?"""
    arguments = module.scopes.parent.get(origin.node)
    if (
        not isinstance(origin.node, ast.arg)
        or origin.path
        or not isinstance(arguments, ast.arguments)
    ):
        return False
    own = [a for a in (*arguments.posonlyargs, *arguments.args) if a.arg not in ("self", "cls")]
    # Defaults are filled from the right: what stands before them has to be given.
    required = own[: len(own) - len(arguments.defaults)] if arguments.defaults else own
    return origin.node is own[0] and len(required) <= 1


def argument_or_attribute_of_trainer(module: Module, call: Call, name: str) -> ast.expr | None:
    """What a trainer is given under a name, in its call or afterwards; None where that is nothing,
    or None.

    A class of the files may set it itself (`self.compute_metrics = ...`), or give it to
    `super().__init__`.
    """
    argument = call.keywords.get(name)
    if argument is None:
        given = (
            *_values_set_by_trainer_class(module, call, name),
            *_values_set_on_trainer(module, call, name),
        )
        argument = next(iter(given), None)
    return None if argument is None or module.flow.value(argument) is None else argument


def _values_set_by_trainer_class(module: Module, call: Call, name: str) -> Iterator[ast.expr]:
    """What the class of a trainer, where the files define it, sets under a name for itself."""
    for origin in module.flow.origins(call.node.func):
        owner = origin.node
        if not isinstance(owner, ast.ClassDef):
            continue
        for value, path in module.flow.values_set_to_class_attributes.get(owner, {}).get(name, ()):
            # `super().__init__(*args, **kwargs)` may come after it, and put None there; that is rare.
            if not path:
                yield value
        for part in ast.walk(owner):
            if isinstance(part, ast.Call) and ast.unparse(part.func) == "super().__init__":
                yield from (word.value for word in part.keywords if word.arg == name)


def _values_set_on_trainer(module: Module, call: Call, name: str) -> Iterator[ast.expr]:
    """What is set on a trainer when it is made: `trainer.compute_metrics = accuracy`."""
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == name:
            if any(origin.node is call.node for origin in module.flow.origins(target.value)):
                yield node.value


def functions_seeing_logits(module: Module, call: Call) -> list[ast.AST] | None:
    """The functions that see the logits, with those of the files that they call; None where one is
    not known.
    """
    functions: list[Function] = []
    for name in ("compute_metrics", "preprocess_logits_for_metrics"):
        argument = argument_or_attribute_of_trainer(module, call, name)
        function = _function_called_by_trainer(module, argument) if argument is not None else None
        if function is not None:
            functions.append(function)
        elif argument is not None or call.open:
            return None
    return with_called_functions(module, functions)


def with_called_functions(module: Module, functions: Sequence[ast.AST]) -> list[ast.AST]:
    """Functions, and those of the files that they call."""
    reached = level = list(functions)
    for _ in range(CALLS):
        calls = (
            node for function in level for node in ast.walk(function) if isinstance(node, ast.Call)
        )
        called = (module.flow.function_that_expression_names(node.func) for node in calls)
        level = list(dict.fromkeys(one for one in called if one is not None and one not in reached))
        reached += level
    return reached


def _function_called_by_trainer(module: Module, argument: ast.expr) -> Function | None:
    """The function that a trainer calls: the one that is named, a method of an object of a class of
    the file, or its `__call__`."""
    function = module.flow.function_that_expression_names(argument)
    if function is not None:
        return function
    owner, name = argument, "__call__"
    if isinstance(argument, ast.Attribute):
        owner, name = argument.value, argument.attr
    for origin in module.flow.origins(owner):
        if isinstance(origin.node, ast.Call):
            function = _method_of_class(module, origin.node.func, name)
            if function is not None:
                return function
    return None


def _method_of_class(module: Module, maker: ast.expr, name: str) -> Function | None:
    """The method of that name in the class of the file which `maker` names."""
    for origin in module.flow.origins(maker):
        body = origin.node.body if isinstance(origin.node, ast.ClassDef) else []
        for item in body:
            if isinstance(item, ast.FunctionDef) and item.name == name:
                return item
    return None


def may_shift_tokens(functions: Sequence[ast.AST]) -> bool:
    """Is there a slice `1:` or `:-1`, or a function that moves tokens, where logits or labels are
    seen?
    """
    nodes = [node for function in functions for node in ast.walk(function)]
    slices = (node for node in nodes if isinstance(node, ast.Slice))
    calls = (ast.unparse(node.func).lower() for node in nodes if isinstance(node, ast.Call))
    return any(
        _is_written_number(one.lower, 1) or _is_written_number(one.upper, -1) for one in slices
    ) or any(part in name for name in calls for part in SHIFTS)


def _is_written_number(node: ast.expr | None, number: int) -> bool:
    """Is it this number, as it is written?"""
    return node is not None and ast.unparse(node) == str(number)


def picks_one_token_per_position(node: ast.AST) -> bool:
    """Does a node pick one token of each place: argmax, topk, max?"""
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
        ("argmax", "topk", ".max")
    )
