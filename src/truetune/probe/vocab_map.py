"""The vocabulary at a model's border: inside it are the ids in use, numbered anew; outside are the ids of always.

Rows of a compacted model's embeddings are slots. Its forward takes vocabulary ids and gives logits that speak them:
indexing, losses and argmax on those mean the ids of the tokenizer, while the storage holds one column a slot.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import functional

ID_ARGUMENTS = ("input_ids", "labels", "shift_labels", "decoder_input_ids")
"""Arguments of a forward that hold ids"""


VOCAB_MAP_ATTRIBUTE = "_truetune_border"
"""Set on the forward that speaks vocabulary ids"""


class VocabMap:
    """Which slot an id has, and which id a slot."""

    def __init__(self, ids: Iterable[int], size: int) -> None:
        """`size` is the number of vocabulary ids; ids beyond it are left out."""
        self.size = size
        self.ids = torch.tensor(sorted({id for id in ids if 0 <= id < size}))
        self.slots = torch.full((size,), -1)
        self.slots[self.ids] = torch.arange(len(self.ids))

    def inward(self, ids: torch.Tensor) -> torch.Tensor:
        """Slots of ids; negative ones (labels without a loss) stay. Raises IndexError for an id beyond the vocabulary,
        KeyError for one without a slot."""
        if ids.numel() and int(ids.max()) >= self.size:
            raise IndexError(f"id {int(ids.max())} is beyond the vocabulary of {self.size}")
        slots = self.slots.to(ids.device)[ids.clamp(min=0)]
        missing = (slots < 0) & (ids >= 0)
        if missing.any():
            raise KeyError(f"id {int(ids[missing][0])} has no slot in the compacted vocabulary")
        return torch.where(ids < 0, ids, slots)

    def outward(self, slots: torch.Tensor) -> torch.Tensor:
        """Ids of slots."""
        return self.ids.to(slots.device)[slots]


class VocabTensor(torch.Tensor):
    """Values with one column a slot in the last dimension, which are spoken to in vocabulary ids."""

    border: VocabMap

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        border: VocabMap = next(
            a.border for a in _flatten_arguments((args, kwargs)) if isinstance(a, VocabTensor)
        )
        name = getattr(func, "__name__", "")
        if name in _TRANSLATORS:
            args, kwargs = _TRANSLATORS[name](border, args, kwargs)
        else:
            args, kwargs = (
                _narrow_operand(border, args),
                {k: _narrow_operand(border, v) for k, v in kwargs.items()},
            )
        with torch._C.DisableTorchFunctionSubclass():
            made = func(*args, **kwargs)
        if name in ("argmax", "argmin"):
            return border.outward(made) if _reduces_last_dim(args, kwargs) else made
        if name in ("max", "min", "topk", "sort") and isinstance(made, tuple):
            return (
                type(made)((made[0], border.outward(made[1])))
                if _reduces_last_dim(args, kwargs)
                else made
            )
        return _wrap_results(border, made, name)


def as_vocab_tensor(values: torch.Tensor, border: VocabMap) -> VocabTensor:
    """Values of (..., slots) as they are seen from outside."""
    made = values.as_subclass(VocabTensor)
    made.border = border
    return made


def compact_vocabulary(model: torch.nn.Module, ids: Iterable[int]) -> VocabMap:
    """Cut the embeddings of a model, in place, to the ids in use, and set the border up around its forward.

    `model` is the innermost one (in PEFT's, DDP's). Raises ValueError where its embeddings are not plain ones.
    """
    into, out = model.get_input_embeddings(), model.get_output_embeddings()  # type: ignore[operator]
    if not isinstance(into, torch.nn.Embedding) or not isinstance(out, torch.nn.Linear):
        raise ValueError("its embeddings are no plain ones")
    border = VocabMap(ids, into.num_embeddings)
    tied = out.weight is into.weight
    _keep_rows(into, border.ids, into.num_embeddings)
    if tied:
        out.out_features = len(border.ids)
    else:
        _keep_rows(out, border.ids, border.size)
    if into.padding_idx is not None:
        into.padding_idx = None
    _wrap_forward(model, border)
    return border


def vocab_map_of(model: torch.nn.Module) -> VocabMap | None:
    """The border in this model: modules behind it are given slots, and give one column a slot. None where the model has
    its whole vocabulary."""
    forwards = (vars(module).get("forward") for module in model.modules())
    return next(
        (
            border
            for forward in forwards
            if (border := getattr(forward, VOCAB_MAP_ATTRIBUTE, None)) is not None
        ),
        None,
    )


def _keep_rows(layer: Any, ids: torch.Tensor, rows: int) -> None:
    weight = layer.weight
    if len(weight) != rows:
        raise ValueError("its input and output embeddings have different numbers of rows")
    for tensor in (weight, getattr(layer, "bias", None)):
        if tensor is not None:
            tensor.data = tensor.data[ids.to(tensor.device)].clone()
            tensor.grad = None
    name = "num_embeddings" if hasattr(layer, "num_embeddings") else "out_features"
    setattr(layer, name, len(ids))


def _wrap_forward(model: Any, border: VocabMap) -> None:
    inner = model.forward
    configs = [
        config
        for config in {id(c): c for c in (model.config, model.config.get_text_config())}.values()
        if getattr(config, "vocab_size", None)
    ]
    holders = [
        module for module in model.modules() if getattr(module, "vocab_size", None) == border.size
    ]

    @functools.wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], torch.Tensor) and not args[0].is_floating_point():
            args = (border.inward(args[0]), *args[1:])
        for name in ID_ARGUMENTS:
            if isinstance(kwargs.get(name), torch.Tensor):
                kwargs[name] = border.inward(kwargs[name])
        before = [(holder, holder.vocab_size) for holder in (*configs, *holders)]
        for holder, _ in before:
            holder.vocab_size = len(border.ids)
        try:
            made = inner(*args, **kwargs)
        finally:
            for holder, size in before:
                holder.vocab_size = size
        logits = getattr(made, "logits", None)
        if isinstance(logits, torch.Tensor) and logits.shape[-1] == len(border.ids):
            made.logits = as_vocab_tensor(logits, border)
        return made

    setattr(forward, VOCAB_MAP_ATTRIBUTE, border)
    model.forward = forward


def _flatten_arguments(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _flatten_arguments(item)
    elif isinstance(value, dict):
        yield from _flatten_arguments(list(value.values()))
    else:
        yield value


def _wrap_results(border: VocabMap, made: Any, name: str) -> Any:
    if isinstance(made, torch.Tensor):
        wide = made.dim() > 0 and made.shape[-1] == len(border.ids) and made.is_floating_point()
        return (
            as_vocab_tensor(made, border)
            if wide and name not in _NEVER_WRAPPED
            else _as_plain_tensor(made)
        )
    if isinstance(made, tuple | list) and not isinstance(made, torch.Size):
        items = [_wrap_results(border, item, name) for item in made]
        return type(made)(items)
    return made


def _as_plain_tensor(value: torch.Tensor) -> torch.Tensor:
    return value.as_subclass(torch.Tensor) if isinstance(value, VocabTensor) else value


def _narrow_operand(border: VocabMap, value: Any) -> Any:
    """What is as wide as the vocabulary becomes as wide as the slots: other operands, and sizes in a view."""
    if isinstance(value, VocabTensor):
        return value
    if isinstance(value, torch.Tensor):
        wide = value.dim() > 0 and value.shape[-1] == border.size
        return value.index_select(-1, border.ids.to(value.device)) if wide else value
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return type(value)(_narrow_operand(border, item) for item in value)
    return len(border.ids) if type(value) is int and value == border.size else value


def _reduces_last_dim(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Does it go along the last dimension, so that the indices found are slots?"""
    values = args[0] if args else kwargs["input"]
    dim = kwargs.get("dim", next((a for a in args[1:] if type(a) is int and a < values.dim()), -1))
    return dim in (None, -1, values.dim() - 1)


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _translate_gather(border: VocabMap, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """gather(values, dim, index) and its like."""
    values, dim, index, *rest = [
        *args,
        *(kwargs[k] for k in ("dim", "index", "indices") if k in kwargs),
    ]
    if isinstance(dim, torch.Tensor):
        dim, index = index, dim
    if dim in (-1, values.dim() - 1):
        index = border.inward(index)
    return (values, dim, index, *rest), {k: v for k, v in kwargs.items() if k == "sparse_grad"}


def _translate_take_along(
    border: VocabMap, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments:
    values, index, *dim = [*args, *(kwargs[k] for k in ("indices", "dim") if k in kwargs)]
    return (values, border.inward(index) if dim in ([-1], [values.dim() - 1]) else index, *dim), {}


def _translate_loss_target(
    border: VocabMap, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments:
    """cross_entropy(values, target), whose classes are columns; probabilities as targets are narrowed."""
    names = ("input", "target")
    values, target, *rest = [*args, *(kwargs[k] for k in names[len(args) :])]
    target = (
        _narrow_operand(border, target) if target.is_floating_point() else border.inward(target)
    )
    return (values, target, *rest), {k: v for k, v in kwargs.items() if k not in names}


def _translate_getitem(
    border: VocabMap, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments:
    """values[..., ids]: what stands at the last dimension, if anything, is ids."""
    values, key = args
    keys = list(key) if isinstance(key, tuple) else [key]
    given = [k for k in keys if k is not Ellipsis and k is not None]
    used = sum(
        k.dim() if isinstance(k, torch.Tensor) and k.dtype == torch.bool else 1 for k in given
    )
    reaches = used == values.dim() or (len(keys) > 1 and keys[0] is Ellipsis and used >= 1)
    if reaches and isinstance(keys[-1], int) and not isinstance(keys[-1], bool):
        keys[-1] = int(border.inward(torch.tensor(keys[-1])))
    elif reaches and isinstance(keys[-1], torch.Tensor) and keys[-1].dtype != torch.bool:
        keys[-1] = border.inward(keys[-1])
    return (values, tuple(keys) if isinstance(key, tuple) else keys[0]), kwargs


_TRANSLATORS: dict[str, Callable[[VocabMap, tuple[Any, ...], dict[str, Any]], Arguments]] = {
    "gather": _translate_gather,
    "index_select": _translate_gather,
    "take_along_dim": _translate_take_along,
    "cross_entropy": _translate_loss_target,
    "nll_loss": _translate_loss_target,
    "__getitem__": _translate_getitem,
}
_NEVER_WRAPPED = ("cross_entropy", "nll_loss", "gather", "take_along_dim", "index_select")
assert functional.cross_entropy.__name__ in _TRANSLATORS
