"""Cuts a model's vocabulary to the ids in use, while everyone outside the model keeps speaking vocabulary ids.

A miniature keeps one embedding row, a *slot*, for each id that occurs; a `VocabMap` says which slot an id has.
`compact_vocabulary` cuts the weights and wraps the model's forward: ids are translated to slots on the way in, and the
logits come out as a `VocabTensor`, a tensor with one column a slot that is indexed, compared and reduced in
vocabulary ids. A trainer, its loss and its metrics run unchanged on it.

Trade-off: the tensor subclass translates the operations that losses and metrics really use (`_TRANSLATORS`), not all
of torch. Full-width logits would need no translation, but with 150,000 columns instead of a few hundred they take most
of a rehearsal's time and memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

# Arguments of a forward that hold ids. Others (masks, positions) hold none and pass unchanged.
ID_ARGUMENTS = ("input_ids", "labels", "shift_labels", "decoder_input_ids")

# Set on the wrapped forward, by which `vocab_map_of` finds the map again in a model that others have wrapped since.
VOCAB_MAP_ATTRIBUTE = "_truetune_vocab_map"


class VocabMap:
    """Which slot an id has, and which id a slot.

    Attributes:
        size: number of vocabulary ids.
        ids: (slots,) int64, ascending: the id of each slot.
        slots: (size,) int64: the slot of each id, -1 for an id without one.
    """

    def __init__(self, ids: Iterable[int], size: int) -> None:
        """Give each of these ids a slot.

        Args:
            ids: vocabulary ids in use; those beyond `size` are left out.
            size: number of vocabulary ids.
        """
        self.size = size
        self.ids = torch.tensor(sorted({id for id in ids if 0 <= id < size}))
        self.slots = torch.full((size,), -1)
        self.slots[self.ids] = torch.arange(len(self.ids))

    def to_slots(self, ids: torch.Tensor) -> torch.Tensor:
        """Slots of ids, in the same shape; negative ids (labels without a loss) stay as they are.

        Raises:
            IndexError: for an id beyond the vocabulary, as the whole embedding would raise.
            KeyError: for an id that has no slot.
        """
        if ids.numel() and int(ids.max()) >= self.size:
            raise IndexError(f"id {int(ids.max())} is beyond the vocabulary of {self.size}")
        slots = self.slots.to(ids.device)[ids.clamp(min=0)]
        missing = (slots < 0) & (ids >= 0)
        if missing.any():
            raise KeyError(f"id {int(ids[missing][0])} has no slot in the compacted vocabulary")
        return torch.where(ids < 0, ids, slots)

    def to_ids(self, slots: torch.Tensor) -> torch.Tensor:
        """Ids of slots, in the same shape."""
        return self.ids.to(slots.device)[slots]


class VocabTensor(torch.Tensor):
    """Values of (..., slots), which the code outside the model addresses with vocabulary ids."""

    vocab_map: VocabMap

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operation of torch: ids become slots before it, slots become ids after it."""
        kwargs = kwargs or {}
        vocab_map: VocabMap = next(
            value.vocab_map
            for value in _flatten_nested_arguments((args, kwargs))
            if isinstance(value, VocabTensor)
        )
        name = getattr(func, "__name__", "")
        if name in _TRANSLATORS:
            args, kwargs = _TRANSLATORS[name](vocab_map, args, kwargs)
        else:
            args = _narrow_operand(vocab_map, args)
            kwargs = {key: _narrow_operand(vocab_map, value) for key, value in kwargs.items()}
        # Without this switch the operation would come back here, endlessly.
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
        if name in ("argmax", "argmin"):
            return vocab_map.to_ids(result) if _reduces_last_dim(args, kwargs) else result
        if name in ("max", "min", "topk", "sort") and isinstance(result, tuple):
            if not _reduces_last_dim(args, kwargs):
                return result
            return type(result)((result[0], vocab_map.to_ids(result[1])))
        return _wrap_operation_results(vocab_map, result, name)


def as_vocab_tensor(values: torch.Tensor, vocab_map: VocabMap) -> VocabTensor:
    """Values of (..., slots) as the code outside the model sees them; memory and gradients are shared."""
    wrapped = values.as_subclass(VocabTensor)
    wrapped.vocab_map = vocab_map
    return wrapped


def compact_vocabulary(model: torch.nn.Module, ids: Iterable[int]) -> VocabMap:
    """Cut the embeddings of a model, in place, to the ids in use, and translate at its forward.

    Args:
        model: the innermost one (in PEFT's, DDP's).
        ids: vocabulary ids in use.

    Returns:
        The map between these ids and the rows that are left.

    Raises:
        ValueError: where its embeddings are not plain ones.
    """
    into, out = model.get_input_embeddings(), model.get_output_embeddings()  # type: ignore[operator]
    if not isinstance(into, torch.nn.Embedding) or not isinstance(out, torch.nn.Linear):
        raise ValueError("its embeddings are no plain ones")
    vocab_map = VocabMap(ids, into.num_embeddings)
    tied = out.weight is into.weight
    _keep_rows(into, vocab_map.ids, into.num_embeddings)
    if tied:
        out.out_features = len(vocab_map.ids)
    else:
        _keep_rows(out, vocab_map.ids, vocab_map.size)
    # The padding index is an id, and no slot: left as it is, torch would zero the gradient of another token's row.
    if into.padding_idx is not None:
        into.padding_idx = None
    _wrap_forward(model, vocab_map)
    return vocab_map


def vocab_map_of(model: torch.nn.Module) -> VocabMap | None:
    """The map of a compacted model, whatever it was wrapped in since; None where it has its whole vocabulary.

    Modules below the wrapped forward are given slots, and give one column a slot.
    """
    for module in model.modules():
        vocab_map: VocabMap | None = getattr(vars(module).get("forward"), VOCAB_MAP_ATTRIBUTE, None)
        if vocab_map is not None:
            return vocab_map
    return None


def _keep_rows(layer: Any, ids: torch.Tensor, rows: int) -> None:
    """Keep these rows of an embedding or a head, whose weight has `rows` of them now."""
    weight = layer.weight
    if len(weight) != rows:
        raise ValueError("its input and output embeddings have different numbers of rows")
    for tensor in (weight, getattr(layer, "bias", None)):
        if tensor is not None:
            # `.data`, so that the parameter stays the same object: an optimizer or a tied layer may hold it.
            tensor.data = tensor.data[ids.to(tensor.device)].clone()
            tensor.grad = None
    name = "num_embeddings" if hasattr(layer, "num_embeddings") else "out_features"
    setattr(layer, name, len(ids))


def _wrap_forward(model: Any, vocab_map: VocabMap) -> None:
    """Translate ids to slots before the model's forward, and its logits after it."""
    inner = model.forward
    holders = _holders_of_vocab_size(model, vocab_map.size)

    @functools.wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], torch.Tensor) and not args[0].is_floating_point():
            args = (vocab_map.to_slots(args[0]), *args[1:])
        for name in ID_ARGUMENTS:
            if isinstance(kwargs.get(name), torch.Tensor):
                kwargs[name] = vocab_map.to_slots(kwargs[name])
        # A model's own loss does `logits.view(-1, config.vocab_size)`. During the forward its vocabulary is the slots;
        # outside it stays that of the tokenizer, which trainers compare it with and checkpoints write down.
        sizes = [(holder, holder.vocab_size) for holder in holders]
        for holder, _ in sizes:
            holder.vocab_size = len(vocab_map.ids)
        try:
            output = inner(*args, **kwargs)
        finally:
            for holder, size in sizes:
                holder.vocab_size = size
        logits = getattr(output, "logits", None)
        if isinstance(logits, torch.Tensor) and logits.shape[-1] == len(vocab_map.ids):
            output.logits = as_vocab_tensor(logits, vocab_map)
        return output

    setattr(forward, VOCAB_MAP_ATTRIBUTE, vocab_map)
    model.forward = forward


def _holders_of_vocab_size(model: Any, size: int) -> list[Any]:
    """The holders of the vocabulary size: configurations and modules that keep the number of ids as
    `vocab_size`.
    """
    configs = {id(config): config for config in (model.config, model.config.get_text_config())}
    return [
        *(config for config in configs.values() if getattr(config, "vocab_size", None)),
        *(module for module in model.modules() if getattr(module, "vocab_size", None) == size),
    ]


def _flatten_nested_arguments(value: Any) -> Iterable[Any]:
    """Yield what stands in nested tuples, lists and dictionaries, such as the tensors of `torch.cat([...])`."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from _flatten_nested_arguments(item)
    elif isinstance(value, dict):
        yield from _flatten_nested_arguments(list(value.values()))
    else:
        yield value


def _wrap_operation_results(vocab_map: VocabMap, result: Any, name: str) -> Any:
    """What an operation returned: floats as wide as the slots speak ids again, all else is plain.

    Known limit: a float result that is as wide as the slots by chance (a mean over tokens, of so many tokens) is
    wrapped too. Elementwise operations on it give the same numbers, so losses are not changed.
    """
    if isinstance(result, torch.Tensor):
        is_wide = (
            result.dim() > 0
            and result.shape[-1] == len(vocab_map.ids)
            and result.is_floating_point()
        )
        if is_wide and name not in _NEVER_WRAPPED:
            return as_vocab_tensor(result, vocab_map)
        return _as_plain_tensor(result)
    # torch.Size is a tuple of ints, and can't be made of a list of other things.
    if isinstance(result, tuple | list) and not isinstance(result, torch.Size):
        return type(result)([_wrap_operation_results(vocab_map, item, name) for item in result])
    return result


def _as_plain_tensor(value: torch.Tensor) -> torch.Tensor:
    """The tensor without the translation."""
    return value.as_subclass(torch.Tensor) if isinstance(value, VocabTensor) else value


def _narrow_operand(vocab_map: VocabMap, value: Any) -> Any:
    """An operand that is as wide as the vocabulary, made as wide as the slots: tensors, and sizes in a view.

    Any int that equals the vocabulary's size is rewritten. Losses flatten logits by `logits.view(-1, vocab_size)`,
    with a size that the trainer read from the configuration or the tokenizer: without this, each such loss raises a
    shape error in the miniature, and the run could not be rehearsed (`test_losses_and_gradients` in
    tests/rehearsal/test_vocab_map.py). The price: an int that means something else and equals the size by chance is
    rewritten, too. It is paid only by operations on logits, whose ints are sizes, dimensions and indices; dimensions
    are small, and indices go through `_TRANSLATORS`. `type(value) is int` spares True, which is an int as well.
    """
    if isinstance(value, VocabTensor):
        return value
    if isinstance(value, torch.Tensor):
        is_wide = value.dim() > 0 and value.shape[-1] == vocab_map.size
        return value.index_select(-1, vocab_map.ids.to(value.device)) if is_wide else value
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return type(value)(_narrow_operand(vocab_map, item) for item in value)
    if type(value) is int and value == vocab_map.size:
        return len(vocab_map.ids)
    return value


def _reduces_last_dim(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Does the operation reduce the last dimension, going along it, so that the indices it returns are
    slots?
    """
    values = args[0] if args else kwargs["input"]
    # Of `topk(values, k, dim)` both are ints: one that is too large to be a dimension is k.
    positional = next((a for a in args[1:] if type(a) is int and a < values.dim()), -1)
    return kwargs.get("dim", positional) in (None, -1, values.dim() - 1)


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _translate_gather(
    vocab_map: VocabMap, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments:
    """gather(values, dim, index) and index_select: the index is of ids where it goes along the last dimension."""
    by_name = [kwargs[key] for key in ("dim", "index", "indices") if key in kwargs]
    values, dim, index, *rest = [*args, *by_name]
    # Positional index with dim by name stands in the other order.
    if isinstance(dim, torch.Tensor):
        dim, index = index, dim
    if dim in (-1, values.dim() - 1):
        index = vocab_map.to_slots(index)
    return (values, dim, index, *rest), {k: v for k, v in kwargs.items() if k == "sparse_grad"}


def _translate_take_along(
    vocab_map: VocabMap, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments:
    """take_along_dim(values, indices, dim): without a dim the indices are of the flattened tensor, and no ids."""
    values, index, *dim = [*args, *(kwargs[k] for k in ("indices", "dim") if k in kwargs)]
    if dim in ([-1], [values.dim() - 1]):
        index = vocab_map.to_slots(index)
    return (values, index, *dim), {}


def _translate_loss_target(
    vocab_map: VocabMap, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments:
    """cross_entropy(values, target), whose classes are columns; probabilities as targets are narrowed."""
    names = ("input", "target")
    values, target, *rest = [*args, *(kwargs[k] for k in names[len(args) :])]
    translate = (
        partial(_narrow_operand, vocab_map) if target.is_floating_point() else vocab_map.to_slots
    )
    return (values, translate(target), *rest), {k: v for k, v in kwargs.items() if k not in names}


def _translate_getitem(
    vocab_map: VocabMap, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments:
    """values[..., ids]: what stands at the last dimension, if anything, is ids."""
    values, key = args
    keys = list(key) if isinstance(key, tuple) else [key]
    last = keys[-1]
    if _reaches_last_dim(values, keys):
        if isinstance(last, int) and not isinstance(last, bool):
            keys[-1] = int(vocab_map.to_slots(torch.tensor(last)))
        elif isinstance(last, torch.Tensor) and last.dtype != torch.bool:
            keys[-1] = vocab_map.to_slots(last)
    return (values, tuple(keys) if isinstance(key, tuple) else keys[0]), kwargs


def _reaches_last_dim(values: torch.Tensor, keys: list[Any]) -> bool:
    """Do these index keys reach the last dimension: does the last of them select along it?"""
    selecting = [key for key in keys if key is not Ellipsis and key is not None]
    # A mask takes as many dimensions as it has, everything else takes one.
    dimensions = sum(
        key.dim() if isinstance(key, torch.Tensor) and key.dtype == torch.bool else 1
        for key in selecting
    )
    if dimensions == values.dim():
        return True
    return len(keys) > 1 and keys[0] is Ellipsis and dimensions >= 1


_TRANSLATORS: dict[str, Callable[[VocabMap, tuple[Any, ...], dict[str, Any]], Arguments]] = {
    "gather": _translate_gather,
    "index_select": _translate_gather,
    "take_along_dim": _translate_take_along,
    "cross_entropy": _translate_loss_target,
    "nll_loss": _translate_loss_target,
    "__getitem__": _translate_getitem,
}
# Their results are per token, never per column, even where there are as many tokens as slots.
_NEVER_WRAPPED = ("cross_entropy", "nll_loss", "gather", "take_along_dim", "index_select")
# torch hands functions over by their name; if one were renamed, labels would be read as slots, silently.
assert functional.cross_entropy.__name__ in _TRANSLATORS
