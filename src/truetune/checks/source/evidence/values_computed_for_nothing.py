"""Finds values that a training computes for a purpose which their name says, and then does not use.

How it works: a table of purposes: weights of classes, groups of parameters, a sampler, a part of the loss, a mask of
the loss, a tuned threshold. A value counts as unused where each of its readings only shows it (prints, logs), converts
it into a value that is itself unused, or where there is none; and where the code goes without such a value in the place
that would take it.

The trade-off: names tell the purpose, so a value under another name is not judged. Names of modules and classes that
other code may read are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module

SHOWING = frozenset(
    ("print", "info", "debug", "warning", "log", "write", "add_scalar", "set_postfix")
    + ("set_description", "log_metrics", "record", "log_dict")
)
"""Calls that only show what they are given"""
COLLECTING = frozenset(("append", "extend", "update", "setdefault", "put"))
"""Methods that keep what they are given in their object: it is used if the object is"""
WITHOUT_GRAPH = frozenset(("item", "detach"))
"""Methods whose result no backward pass can be called on: what is collected of them is a figure for the log"""
CONVERSIONS = (
    frozenset(
        ("tensor", "as_tensor", "FloatTensor", "Tensor", "from_numpy", "to", "cuda", "cpu", "float")
        + ("double", "half", "numpy", "tolist", "mean", "sum", "round", "len")
        + ("dict", "zip", "enumerate", "list", "sorted")
    )
    | WITHOUT_GRAPH
)
"""Calls whose result is used for the purpose if it is used at all"""
SAMPLERS = (
    "torch.utils.data.WeightedRandomSampler",
    "torch.utils.data.SubsetRandomSampler",
    "torch.utils.data.BatchSampler",
    "torch.utils.data.sampler.*Sampler",
    "transformers.trainer_pt_utils.*Sampler",
)
LOADERS = ("torch.utils.data.DataLoader",)
LOSSES = (
    "torch.nn.CrossEntropyLoss",
    "torch.nn.BCEWithLogitsLoss",
    "torch.nn.NLLLoss",
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.binary_cross_entropy_with_logits",
    "transformers.*Trainer",
)
AVERAGES = (
    "torch.optim.swa_utils.AveragedModel",
    "diffusers.training_utils.EMAModel",
    "diffusers.EMAModel",
    "torch_ema.ExponentialMovingAverage",
    "ema_pytorch.EMA",
)
UPDATES = frozenset(("update_parameters", "update", "step", "store", "to", "eval", "train"))
"""Methods of an average that do not use it"""
CLASS_WEIGHTS = re.compile(
    r"^(class|label|pos|loss)_?weights?$|^weights?_per_class$|^balanced_weights$", re.I
)
LOSS_PART = re.compile(
    r"(^|_)(kl|aux|auxiliary|reg|regularization|penalty|distill|distillation|kd|contrastive|entropy|scaled|weighted"
    r"|router|balance|mse|cosine|l2|anchor|combined|total|final|full)_?(loss|penalty|term)$"
    r"|^(kl|l2|length|reg\w*)_(penalty|term)$|^loss_(kl|aux|reg|kd|total|scaled)$",
    re.I,
)
LOSS_MASK = re.compile(
    r"^(loss|answer|completion|response|action|target|assistant|reply)_?mask$", re.I
)
THRESHOLD = re.compile(r"^(best|optimal|tuned|chosen)_?(threshold|thresh|thr|cutoff)$", re.I)
PREDICTION = re.compile(r"prob|score|pred|sigmoid|softmax|logit|conf|output|similarit", re.I)
"""Names of what a threshold is compared with"""
GROUPING = re.compile(r"param\w*_groups?$|grouped_param", re.I)
MAX_STEPS = 4
"""Conversions that a value is followed through"""


class UnusedValue(NamedTuple):
    """A value that nothing uses for what it was computed for."""

    name: str
    value: ast.expr
    taker: ast.AST
    """What would take it, and goes without"""
    effect: str
    remedy: str


class Purpose(NamedTuple):
    """One purpose that a value may have."""

    is_meant: Callable[[Module, str, ast.expr], bool]
    find_taker: Callable[[Module, ast.Name], ast.AST | None]
    effect: str
    remedy: str


def values_computed_for_nothing(module: Module) -> Iterator[UnusedValue]:
    """The values of a file that have a purpose and no use, each once.

    Args:
        module: A file that is judged.

    Yields:
        The values, in the order of the text.
    """
    seen: set[tuple[str, int]] = set()
    for target, value, purpose in values_with_purpose(module):
        key = (target.id, id(module.scopes.scope_that_binds_name(target)))
        if key in seen or not is_unused_except_to_show(module, target):
            continue
        taker = purpose.find_taker(module, target)
        if taker is not None:
            seen.add(key)
            yield UnusedValue(target.id, value, taker, purpose.effect, purpose.remedy)


def values_with_purpose(module: Module) -> Iterator[tuple[ast.Name, ast.expr, Purpose]]:
    """The names of a file that are set to a value with a purpose."""
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if len(node.targets) != 1 or not isinstance(target, ast.Name):
            continue
        for purpose in PURPOSES:
            if purpose.is_meant(module, target.id, node.value):
                yield target, node.value, purpose
                break


def is_unused_except_to_show(module: Module, target: ast.Name, depth: int = 0) -> bool:
    """Does nothing use a name but to show it?

    Args:
        module: The file.
        target: A place that sets the name.
        depth: How many conversions were followed.

    Returns:
        False where a reading may use it, or code that is not seen may.
    """
    home = module.scopes.scope_that_binds_name(target)
    if isinstance(home.node, ast.ClassDef) or target.id in home.elsewhere:
        return False
    if home is home.enclosing_file_scope and _is_read_by_other_code(module, target.id):
        return False
    if any(
        isinstance(node.target, ast.Name) and node.target.id == target.id
        for node in module.nodes(ast.AugAssign)
    ):
        return False
    reads = [
        read
        for read in module.name_reads.get(target.id, ())
        if module.scopes.scope_that_binds_name(read) is home
    ]
    return all(_is_reading_without_use(module, read, depth) for read in reads)


def _is_read_by_other_code(module: Module, name: str) -> bool:
    """May a text or another file read a name of the file?"""
    word = re.compile(rf"\b{re.escape(name)}\b")
    others = (part for part in module.self_and_files_run_together if part is not module)
    return any(node.value == name for node in module.nodes(ast.Constant)) or any(
        word.search(part.text) for part in others
    )


def _is_reading_without_use(module: Module, read: ast.Name, depth: int) -> bool:
    """Does a reading only show the value, or make another one of it that is unused?"""
    if _is_line_only_update_of_average(module, read):
        return True
    for up in module.parents(read):
        is_without_use = _is_place_without_use(module, up, read, depth)
        if is_without_use is not None:
            return is_without_use
    return False


def _is_line_only_update_of_average(module: Module, read: ast.Name) -> bool:
    """Is a line no more than `average.update(model)`?"""
    owner = module.scopes.parent.get(read)
    if not isinstance(owner, ast.Attribute) or owner.attr not in UPDATES:
        return False
    call = module.scopes.parent.get(owner)
    return isinstance(call, ast.Call) and isinstance(module.scopes.parent.get(call), ast.Expr)


def _is_place_without_use(module: Module, up: ast.AST, read: ast.Name, depth: int) -> bool | None:
    """Does a place around a reading leave the value unused? None where what is around that place decides."""
    if isinstance(up, ast.Call):
        return _is_call_without_use(module, up, read, depth)
    if isinstance(up, ast.Assign):
        target = up.targets[0]
        if not isinstance(target, ast.Name):
            return False
        return target.id == read.id or (
            depth < MAX_STEPS and is_unused_except_to_show(module, target, depth + 1)
        )
    if isinstance(up, ast.BinOp | ast.Compare | ast.Subscript | ast.comprehension):
        return _is_shown_or_kept_unused(module, up, depth)
    if isinstance(up, ast.stmt | ast.Yield | ast.YieldFrom | ast.Await):
        return isinstance(up, ast.Expr)
    return None


def _is_call_without_use(module: Module, call: ast.Call, read: ast.Name, depth: int) -> bool | None:
    """Does a call leave a value unused that it is given? None where what is around the call decides."""
    name = last_name_of_called(call)
    if name in SHOWING:
        return True
    if name in COLLECTING:
        is_filled = isinstance(call.func, ast.Attribute) and call.func.value is read
        return is_filled or _is_collected_unused(module, call, depth)
    return None if name in CONVERSIONS else False


def _is_collected_unused(module: Module, call: ast.Call, depth: int) -> bool:
    """Does a call keep a value in an object that nothing uses, or only a figure of the value?"""
    given = [part for one in (*call.args, *call.keywords) for part in ast.walk(one)]
    if any(
        isinstance(part, ast.Call) and last_name_of_called(part) in WITHOUT_GRAPH for part in given
    ):
        return True
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return (
        isinstance(owner, ast.Name)
        and depth < MAX_STEPS
        and is_unused_except_to_show(module, owner, depth + 1)
    )


def _is_shown_or_kept_unused(module: Module, node: ast.AST, depth: int) -> bool:
    """Does a place stand in a call that shows it, or keeps it where nothing uses it?"""
    for call in (up for up in module.parents(node) if isinstance(up, ast.Call)):
        name = last_name_of_called(call)
        if name in SHOWING or (name in COLLECTING and _is_collected_unused(module, call, depth)):
            return True
    return False


def _are_class_weights(_module: Module, name: str, value: ast.expr) -> bool:
    """Are these the weights of classes in a loss?"""
    is_computed = not isinstance(value, ast.Constant)
    return is_computed and bool(CLASS_WEIGHTS.match(name))


def _loss_without_weight(module: Module, _target: ast.Name) -> ast.AST | None:
    """A loss, or a trainer, that is given no weights; None where one is, or a hand-written loss is."""
    calls = [*module.calls(*LOSSES)]
    if not calls or any(not call.lacks("weight") or not call.lacks("pos_weight") for call in calls):
        return None
    is_own = any(one.name == "compute_loss" for one in module.nodes(ast.FunctionDef))
    is_trainer = all(call.named("transformers.*") for call in calls)
    return None if is_own and is_trainer else calls[0].node


def _is_sampler(module: Module, _name: str, value: ast.expr) -> bool:
    """Is it a sampler of rows?"""
    return isinstance(value, ast.Call) and module.flow.call(value).named(*SAMPLERS)


def _loader_that_leaves_sampler_out(module: Module, _target: ast.Name) -> ast.AST | None:
    """A loader that draws its rows by itself; None where one has a sampler, or there is none."""
    calls = [*module.calls(*LOADERS)]
    is_bare = all(call.lacks("sampler", 3) and call.lacks("batch_sampler", 4) for call in calls)
    return calls[0].node if calls and is_bare else None


def _are_parameter_groups(module: Module, name: str, value: ast.expr) -> bool:
    """Are these groups of parameters with settings of their own?"""
    if isinstance(value, ast.List):
        keys = [
            key.value
            for item in value.elts
            if isinstance(item, ast.Dict)
            for key in item.keys
            if isinstance(key, ast.Constant)
        ]
        return keys.count("params") >= 2
    return isinstance(value, ast.Call) and bool(GROUPING.search(name))


def _optimizer_without_groups(module: Module, _target: ast.Name) -> ast.AST | None:
    """An optimizer that is given all parameters as one group."""
    for call in module.all_calls:
        given = call.args[0] if call.args else call.keywords.get("params")
        if "optimizer" in module.flow.types(call.node) and isinstance(given, ast.Call):
            if last_name_of_called(given) in ("parameters", "filter"):
                return call.node
    return None


def _is_loss_part(_module: Module, name: str, value: ast.expr) -> bool:
    """Is it a part of the loss, or the loss in its last form, as a tensor with its graph?"""
    calls = {last_name_of_called(part) for part in ast.walk(value) if isinstance(part, ast.Call)}
    is_computed = isinstance(value, ast.BinOp | ast.Call)
    return is_computed and bool(LOSS_PART.search(name)) and not calls & {"item", "detach", "float"}


def _backward_of_another_loss(module: Module, target: ast.Name) -> ast.AST | None:
    """The backward pass of the function, or loop, that computes a part of the loss."""
    if _is_without_gradients(module, target):
        return None
    function = module.function_around(target)
    calls = (
        part
        for part in ast.walk(module.tree if function is None else function)
        if is_backward_call(part) and module.function_around(part) is function
    )
    loops = (up for up in module.parents(target) if isinstance(up, ast.For | ast.While))
    loop = next(loops, None)
    return next((call for call in calls if loop is None or loop in module.parents(call)), None)


def _is_without_gradients(module: Module, node: ast.AST) -> bool:
    """Is a place inside `with torch.no_grad()`?"""
    return any(
        isinstance(up, ast.With) and "no_grad" in ast.unparse(up.items[0].context_expr)
        for up in module.parents(node)
    )


def _is_loss_mask(_module: Module, name: str, value: ast.expr) -> bool:
    """Is it a mask of the tokens that the loss is over?"""
    return not isinstance(value, ast.Constant) and bool(LOSS_MASK.match(name))


def _is_tuned_threshold(_module: Module, name: str, value: ast.expr) -> bool:
    """Is it a threshold that was searched for?"""
    return not isinstance(value, ast.Constant) and bool(THRESHOLD.match(name))


def _comparison_with_a_number(module: Module, target: ast.Name) -> ast.AST | None:
    """A comparison of predictions with a fixed number, below the place that tunes a threshold."""
    for node in module.nodes(ast.Compare):
        side = node.comparators[0]
        number = side.value if isinstance(side, ast.Constant) else None
        is_share = isinstance(number, float) and 0 < number < 1
        is_of_prediction = PREDICTION.search(ast.unparse(node.left)) is not None
        if is_share and is_of_prediction and node.lineno > target.lineno:
            return node
    return None


def _is_average_of_weights(module: Module, _name: str, value: ast.expr) -> bool:
    """Is it a moving average of a model's weights?"""
    return isinstance(value, ast.Call) and module.flow.call(value).named(*AVERAGES)


def _save_of_raw_weights(module: Module, target: ast.Name) -> ast.AST | None:
    """A place that saves or asks a model below an average that nothing else uses."""
    for call in module.methods("save_pretrained", "save_model"):
        owner = call.receiver
        if isinstance(owner, ast.Name) and "model" in module.flow.types(owner):
            if call.node.lineno > target.lineno:
                return call.node
    return None


PURPOSES = (
    Purpose(
        _is_average_of_weights,
        _save_of_raw_weights,
        "the saved weights are not the averaged ones",
        "copy the averaged weights into the model before you save it",
    ),
    Purpose(
        _are_class_weights,
        _loss_without_weight,
        "the loss gets no weights, so all classes count equally",
        "pass them to the loss: CrossEntropyLoss(weight=...)",
    ),
    Purpose(
        _is_sampler,
        _loader_that_leaves_sampler_out,
        "the loader does not use it",
        "pass it to the loader: DataLoader(rows, sampler=...), without shuffle=True",
    ),
    Purpose(
        _are_parameter_groups,
        _optimizer_without_groups,
        "the optimizer gets all parameters as one group",
        "pass the groups to the optimizer instead of model.parameters()",
    ),
    Purpose(
        _is_loss_part,
        _backward_of_another_loss,
        "backward() is called on another loss",
        "call backward() on it, or add it to the loss that backward() is called on",
    ),
    Purpose(
        _is_loss_mask,
        _backward_of_another_loss,
        "the loss is computed without it",
        "multiply the loss of each token by it, and divide by its sum",
    ),
    Purpose(
        _is_tuned_threshold,
        _comparison_with_a_number,
        "the predictions use a fixed number",
        "compare with it",
    ),
)
