"""Tells the axes of a tensor in the symbolic run of a script: rows, positions of tokens, the vocabulary, or one score.

How it works: a batch of a tokenizer has rows and positions, what a model gives has one axis more, a linear layer with
one output leaves an axis of one, and each operation of a tensor takes axes away, adds some or keeps them. So two
tensors that meet in a loss can be compared by what their axes mean, though no size is known.

The trade-off: what is not understood on the way has unknown axes, and rules say nothing of it.
"""

from __future__ import annotations

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Constant,
    Instance,
    Item,
    Mapping,
    Opaque,
    Operation,
    Result,
    Sequence,
    Slice,
    Value,
    options_of_choice,
)

Axes = tuple[str, ...]
ROWS, POSITIONS, WIDTH, VOCABULARY = "rows", "positions", "width", "vocabulary"
ONE = "one"
"""An axis of one that a layer with one output leaves"""
NEW = "new"
"""An axis of one that a script adds, to compare each with each"""
MAX_DEPTH = 40
"""Operations between a loss and what its tensors come from; some twenty"""
MODELS_WITH_VOCABULARY = (
    "transformers.*ForCausalLM.from_pretrained",
    "transformers.*LMHeadModel.from_pretrained",
)
MODELS_OF_STATES = (
    "transformers.AutoModel.from_pretrained",
    "transformers.*[a-z0-9]Model.from_pretrained",
)
CLASSIFIERS = ("transformers.*ForSequenceClassification.from_pretrained",)
TOKENIZERS = ("transformers.*Tokenizer*.from_pretrained",)
TOKEN_COLUMNS = frozenset(("input_ids", "attention_mask", "token_type_ids"))
KEEPING_METHODS = frozenset(
    ("to", "cuda", "cpu", "float", "double", "half", "bfloat16", "long", "int", "bool", "detach", "clone", "contiguous",
     "type", "sigmoid", "softmax", "log_softmax", "exp", "log", "tanh", "relu", "clamp", "clamp_min", "abs", "pow",
     "requires_grad_", "type_as", "neg", "sqrt", "masked_fill", "masked_fill_", "mul", "div", "cumsum")
)  # fmt: skip
KEEPING_FUNCTIONS = (
    "torch.nn.functional.log_softmax",
    "torch.nn.functional.softmax",
    "torch.nn.functional.relu",
    "torch.nn.functional.gelu",
    "torch.nn.functional.dropout",
    "torch.nn.functional.normalize",
    "torch.nn.functional.logsigmoid",
    "torch.sigmoid",
    "torch.exp",
    "torch.log_softmax",
    "torch.softmax",
    "torch.clamp",
    "torch.abs",
    "torch.tanh",
)
KEEPING_LAYERS = (
    "torch.nn.Dropout",
    "torch.nn.LayerNorm",
    "torch.nn.ReLU",
    "torch.nn.GELU",
    "torch.nn.Tanh",
    "torch.nn.Sigmoid",
    "torch.nn.Identity",
)
REDUCTIONS = frozenset(("mean", "sum", "std", "var", "amax", "amin", "logsumexp", "argmax"))


def axes_of(value: Value | None, depth: int = 0) -> Axes | None:
    """The axes of a tensor.

    Args:
        value: What the tensor is in a symbolic run.
        depth: Operations that were gone back so far.

    Returns:
        A name for each axis; None where they are not known.
    """
    if value is None or depth > MAX_DEPTH:
        return None
    options = options_of_choice(value)
    if len(options) > 1:
        axes_of_options = {axes_of(option, depth + 1) for option in options}
        return axes_of_options.pop() if len(axes_of_options) == 1 else None
    if isinstance(value, Item):
        return _axes_of_item(value, depth)
    if isinstance(value, Attribute):
        return _axes_of_attribute(value, depth)
    if isinstance(value, Operation):
        return _axes_of_operation(value, depth)
    return _axes_of_call(value.call, depth) if isinstance(value, Result) else None


def _axes_of_operation(value: Operation, depth: int) -> Axes | None:
    """The axes of a sum, product or comparison: those of the tensor with more of them."""
    if value.operator == "@":
        return None
    sides = [one for one in value.operands if not isinstance(one, Constant)]
    axes = [axes_of(one, depth + 1) for one in sides]
    known = [one for one in axes if one is not None]
    if len(sides) == 1 and known:
        return known[0]
    return max(known, key=len) if known and len(known) == len(sides) else None


def _axes_of_attribute(value: Attribute, depth: int) -> Axes | None:
    """The axes of `outputs.logits`, `outputs.last_hidden_state`, `batch.input_ids`, `x.T`."""
    if value.name in TOKEN_COLUMNS and _is_tokenizer_output_or_its_move(value.base):
        return (ROWS, POSITIONS)
    model_call = model_call_of_outputs(value)
    if model_call is None:
        return axes_of(value.base, depth + 1) if value.name in ("data",) else None
    if value.name == "logits":
        return _axes_of_logits(model_call)
    return (ROWS, POSITIONS, WIDTH) if value.name == "last_hidden_state" else None


def model_call_of_outputs(value: Value) -> CallEvent | None:
    """The call of a model of which a value is an output."""
    base = value.base if isinstance(value, Attribute) else value
    if not isinstance(base, Result) or base.call.method not in ("__call__", "forward"):
        return None
    return base.call if base.call.receiver is not None else None


def _axes_of_logits(call: CallEvent) -> Axes | None:
    """The axes of a model's logits."""
    for way in lineages_back_to_origins(call.receiver) if call.receiver is not None else ():
        if way.call_that_gave_origin is None:
            return None
        if way.call_that_gave_origin.named(*MODELS_WITH_VOCABULARY):
            return (ROWS, POSITIONS, VOCABULARY)
        if way.call_that_gave_origin.named(*CLASSIFIERS):
            is_one = constant_of(way.call_that_gave_origin.argument(-1, "num_labels")) == 1
            return (ROWS, ONE) if is_one else (ROWS, WIDTH)
    return None


def _is_tokenizer_output_or_its_move(value: Value) -> bool:
    """Is a value what a tokenizer gave, or a move of that to a device?"""
    if isinstance(value, Result) and value.call.method in ("to", "cuda"):
        return value.call.receiver is not None and _is_tokenizer_output_or_its_move(
            value.call.receiver
        )
    if not isinstance(value, Result) or not isinstance(value.call.receiver, Result):
        return False
    return value.call.receiver.call.named(*TOKENIZERS)


def _axes_of_item(value: Item, depth: int) -> Axes | None:
    """The axes of `batch["input_ids"]`, and of an index or slice of a tensor."""
    name = constant_of(value.key)
    if isinstance(name, str):
        return (
            (ROWS, POSITIONS)
            if name in TOKEN_COLUMNS and _is_tokenizer_output_or_its_move(value.base)
            else None
        )
    axes = axes_of(value.base, depth + 1)
    if axes is None:
        return None
    keys = value.key.items if isinstance(value.key, Sequence) else [value.key]
    return _axes_after_index(axes, keys)


def _axes_after_index(axes: Axes, keys: list[Value]) -> Axes | None:
    """The axes that an index leaves: a number takes one away, None adds one, a slice keeps it."""
    left: list[str] = []
    place = 0
    for key in keys:
        if isinstance(key, Constant) and key.value is None:
            left.append(NEW)
            continue
        if isinstance(key, Constant) and key.value is Ellipsis:
            rest = len(axes) - sum(not _is_new_axis(one) for one in keys) + 1
            left += axes[place : place + rest]
            place += rest
            continue
        if place >= len(axes):
            return None
        if isinstance(key, Slice):
            left.append(axes[place])
        elif not (isinstance(key, Constant) and isinstance(key.value, int)):
            return None
        place += 1
    return (*left, *axes[place:])


def _is_new_axis(key: Value) -> bool:
    """Is an index None, which adds an axis?"""
    return isinstance(key, Constant) and key.value is None


def _axes_of_call(call: CallEvent, depth: int) -> Axes | None:
    """The axes of what a call gives."""
    if call.named("torch.tensor", "torch.as_tensor", "torch.FloatTensor", "torch.LongTensor"):
        return _axes_of_made_tensor(call)
    if call.method in ("__call__", "forward"):
        return _axes_of_layer(call, depth)
    if call.named(*KEEPING_FUNCTIONS):
        return axes_of(call.args[0], depth + 1) if call.args else None
    method, tensor, args = _operation_tensor_and_other_arguments(call)
    if tensor is None:
        return None
    if method in ("pop", "get"):
        return axes_of(_column_popped_from_batch(tensor, args), depth + 1)
    if method in KEEPING_METHODS:
        return axes_of(tensor, depth + 1)
    if method == "gather":
        return axes_of(call.argument(len(call.args) - 1, "index"), depth + 1)
    if method in ("view", "reshape"):
        return _axes_after_view(axes_of(tensor, depth + 1), args)
    return _axes_after_method(call, method, axes_of(tensor, depth + 1), args)


def _column_popped_from_batch(batch: Value, args: list[Value]) -> Value | None:
    """The column that `batch.pop("score")` gives."""
    name = constant_of(args[0]) if args else None
    if isinstance(batch, Mapping | Opaque) and isinstance(name, str):
        return batch.entries.get(name)
    return None


def _operation_tensor_and_other_arguments(call: CallEvent) -> tuple[str, Value | None, list[Value]]:
    """The operation that a call is, the tensor that it is made on, and its other arguments."""
    if call.method is not None:
        return call.method, call.receiver, list(call.args)
    name = call.names[0] if call.names else ""
    if name.startswith("torch.") and call.args:
        return name.rpartition(".")[2], call.args[0], list(call.args[1:])
    return "", None, []


def _axes_of_made_tensor(call: CallEvent) -> Axes | None:
    """The axes of `torch.tensor([row["score"] for row in rows])`: one, where its entries are numbers."""
    rows = call.args[0] if call.args else None
    if not isinstance(rows, Sequence) or not rows.is_open or len(rows.items) != 1:
        return None
    return (ROWS,) if _is_number(rows.items[0]) else None


SCORE_NAMES = frozenset(
    ("score", "label", "target", "rating", "reward", "value", "grade", "stars", "y")
)


def _is_number(value: Value) -> bool:
    """Is a value one number: `float(...)`, or a field of a row that is called like a score?"""
    if isinstance(value, Constant):
        return isinstance(value.value, int | float)
    if isinstance(value, Result):
        return value.call.named("float", "int", "len")
    return isinstance(value, Item) and constant_of(value.key) in SCORE_NAMES


def _axes_of_layer(call: CallEvent, depth: int) -> Axes | None:
    """The axes of what a layer gives: a linear one replaces the last axis by its outputs."""
    made = _making_of_layer(call)
    if made is None or not call.args or isinstance(call.receiver, Instance):
        return None
    if made.named("torch.nn.Sequential"):
        made = _last_linear_layer(made) or made
    if made.named("torch.nn.Linear"):
        inner = axes_of(call.args[0], depth + 1)
        outputs = constant_of(made.argument(1, "out_features"))
        return None if not inner else (*inner[:-1], ONE if outputs == 1 else WIDTH)
    return axes_of(call.args[0], depth + 1) if made.named(*KEEPING_LAYERS) else None


def _making_of_layer(call: CallEvent) -> CallEvent | None:
    """The call that made the layer that another call runs."""
    if call.receiver is None:
        return None
    layers = [way.call_that_gave_origin for way in lineages_back_to_origins(call.receiver)]
    if len(layers) == 1 and layers[0] is not None:
        return layers[0]
    return call.receiver.call if isinstance(call.receiver, Result) else None


def _last_linear_layer(call_event: CallEvent) -> CallEvent | None:
    """The call that made the last linear layer of a `Sequential`; None where it has none."""
    layers = [one.call for one in call_event.args if isinstance(one, Result)]
    linear = [one for one in layers if one.named("torch.nn.Linear")]
    return linear[-1] if linear else None


def _axes_after_view(axes: Axes | None, args: list[Value]) -> Axes | None:
    """The axes of `view(...)`: one of all rows for `view(-1)`, axes of their own for several sizes."""
    sizes = args[0].items if len(args) == 1 and isinstance(args[0], Sequence) else args
    if len(sizes) == 1 and constant_of(sizes[0]) == -1:
        is_rows = axes is not None and all(one in (ROWS, ONE) for one in axes)
        return (ROWS,) if is_rows else None
    if len(sizes) < 2:
        return None
    return tuple(f"axis {n}" for n in range(len(sizes)))


def _axes_after_method(
    call: CallEvent, method: str, axes: Axes | None, args: list[Value]
) -> Axes | None:
    """The axes after a method that takes axes away, or adds one."""
    if axes is None:
        return None
    if not args and not call.keywords and method in ("flatten", "squeeze"):
        return _axes_after_method_without_axis(method, axes)
    axis = constant_of(_axis_given(call, args))
    if not isinstance(axis, int) or not -len(axes) - 1 <= axis <= len(axes):
        return None
    if method == "unsqueeze":
        return _with_new_axis(axes, axis)
    place = axis % len(axes)
    if method == "squeeze":
        return (*axes[:place], *axes[place + 1 :]) if axes[place] in (ONE, NEW) else axes
    if method in REDUCTIONS:
        kept = (NEW,) if _keeps_reduced_axis(call, args) else ()
        return (*axes[:place], *kept, *axes[place + 1 :])
    return None


def _axes_after_method_without_axis(method: str, axes: Axes) -> Axes | None:
    """The axes after `flatten()`, which joins all, and `squeeze()`, which takes those of one away."""
    if method == "flatten":
        return _axes_after_view(axes, [Constant(-1)])
    return tuple(one for one in axes if one not in (ONE, NEW))


def _with_new_axis(axes: Axes, axis: int) -> Axes:
    """The axes with a new one in that place, which is counted from the end where it is negative."""
    place = axis if axis >= 0 else len(axes) + 1 + axis
    return (*axes[:place], NEW, *axes[place:])


def _keeps_reduced_axis(call: CallEvent, args: list[Value]) -> bool:
    """Does a reduction leave an axis of one: `keepdim=True` of torch, `keepdims` of NumPy, or the second argument?"""
    keepdim_argument = call.keywords.get("keepdim") or call.keywords.get("keepdims")
    return constant_of(keepdim_argument or (args[1] if len(args) > 1 else None)) is True


def _axis_given(call: CallEvent, args: list[Value]) -> Value | None:
    """The axis that a call names: `dim` of torch, `axis` of NumPy, or the first argument."""
    return call.keywords.get("dim") or call.keywords.get("axis") or (args[0] if args else None)


def reduced_axis(call: CallEvent) -> str | None:
    """The axis that `x.mean(dim=1)` and the like take away; None where it is not known."""
    method, tensor, args = _operation_tensor_and_other_arguments(call)
    axes = axes_of(tensor) if method in REDUCTIONS else None
    axis = constant_of(_axis_given(call, args))
    if axes is None or not isinstance(axis, int) or not -len(axes) <= axis < len(axes):
        return None
    return axes[axis]
