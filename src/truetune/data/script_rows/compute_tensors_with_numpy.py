"""Computes what a script's code does with tensors whose numbers are known: operators, indices, methods, functions of
torch.

How it works: a tensor is a nested list of constants of the kind `TENSOR`. An operation makes numpy arrays of it,
computes with numpy, whose rules for shapes are those of torch, and makes a nested list of the result. What is set in
place changes the lists themselves, so that two names of one tensor, and a row that was taken out of it, stay the same.

The trade-off: a slice is a copy here, and in torch a view. What is set in a slice that has a name of its own does not
reach the tensor. Results of more than `MAX_ITEMS` numbers are not computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from truetune.source.symbolic_execution.fold_constants import BY_SIGN, constant_of
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Constant,
    Library,
    Sequence,
    Slice,
    Value,
)

Array = NDArray[Any]
MAX_ITEMS = 200_000
"""Numbers of one tensor: far more tokens than a batch of a few rows has"""
MAX_DIMENSIONS = 4
"""Of a tensor; attention masks of batches have four"""
TENSOR = "tensor"
"""The kind of a list that is a tensor: comparisons and masks go item by item"""
NUMBER_KINDS = "biuf"
"""Kinds of numpy's types that are truth values or numbers"""
SIGNS = ("+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "&", "|", "^", "~")
"""Operators that go item by item"""
DTYPES: dict[str, Any] = {
    "bool": np.bool_,
    "long": np.int64,
    "int": np.int64,
    "int8": np.int64,
    "int16": np.int64,
    "int32": np.int64,
    "int64": np.int64,
    "uint8": np.int64,
    "float": np.float64,
    "half": np.float64,
    "double": np.float64,
    "float16": np.float64,
    "bfloat16": np.float64,
    "float32": np.float64,
    "float64": np.float64,
}
"""The last part of a type's name in torch and numpy -> what numpy computes with here: widths change no id or mask"""


class TensorArguments(NamedTuple):
    """The arguments of a call as plain values and arrays."""

    args: tuple[Any, ...]
    keywords: dict[str, Any]

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its position or name."""
        if position < len(self.args):
            return self.args[position]
        return self.keywords.get(name, default)


class NotComputableError(ValueError):
    """An operation whose result is not known."""


def is_tensor(value: Value | None) -> TypeGuard[Sequence]:
    """Is it a tensor whose numbers are known?"""
    return isinstance(value, Sequence) and value.kind == TENSOR and not value.is_open


def array_of(value: Value | None) -> Array | None:
    """The numbers of a tensor, list or constant as an array; None where one is not known, or lengths differ."""
    try:
        # Before anything is computed: a list may hold one long list a hundred thousand times.
        _count_numbers(value, 0)
        plain = constant_of(value)
        if plain is NO_CONSTANT or plain is None or isinstance(plain, str | dict | set):
            return None
        array = np.asarray(plain)
    except (ValueError, TypeError, OverflowError):
        return None  # too many numbers, or lists of unlike length
    if array.size == 0:
        array = array.astype(np.int64)
    is_small = array.size <= MAX_ITEMS and array.ndim <= MAX_DIMENSIONS
    return array if array.dtype.kind in NUMBER_KINDS and is_small else None


def _count_numbers(value: Value | None, count: int) -> int:
    """The numbers in nested lists, added to a count. Raises NotComputableError above `MAX_ITEMS`."""
    if not isinstance(value, Sequence):
        count += 1
    else:
        lists = [one for one in value.items if isinstance(one, Sequence)]
        count += len(value.items) - len(lists)
        for one in lists:
            count = _count_numbers(one, count)
    if count > MAX_ITEMS:
        raise NotComputableError
    return count


def tensor_of(array: Array | np.generic) -> Value:
    """An array as a tensor; a single number as a constant."""
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        return Constant(array.item())
    if array.ndim == 1:
        return Sequence(TENSOR, [Constant(one) for one in array.tolist()])
    return Sequence(TENSOR, [tensor_of(one) for one in array])


def operate_on_tensors(sign: str, operands: tuple[Value, ...]) -> Value | None:
    """The result of an operator, item by item; None where no operand is a tensor, or one is not known."""
    if sign not in SIGNS or not any(map(is_tensor, operands)):
        return None
    arrays = [array_of(one) for one in operands]
    if any(one is None for one in arrays):
        return None
    return _compute_tensor_or_none(
        lambda: _apply_operator(sign, [one for one in arrays if one is not None])
    )


def _apply_operator(sign: str, arrays: list[Array]) -> Any:
    """The result of an operator on arrays. Raises NotComputableError where it would be large."""
    if len(arrays) == 1:
        return ~arrays[0] if sign == "~" else -arrays[0]
    _require_small_result(*arrays)
    return BY_SIGN[sign](*arrays)


def _require_small_result(*operands: Any) -> None:
    """Raise NotComputableError where operands, each repeated to the shape of the others, give a large result."""
    shapes = (np.shape(one) for one in operands)
    if math.prod(np.broadcast_shapes(*shapes)) > MAX_ITEMS:
        raise NotComputableError


def item_of_tensor(base: Sequence, key: Value) -> Value | None:
    """`batch[:, 1:]`, `ids[mask]` and the like; None for one whole row, which is the row itself, and where it is
    not known.
    """
    if not isinstance(key, Slice | Sequence):
        return None
    if isinstance(key, Slice) and any(isinstance(one, Sequence) for one in base.items):
        return None  # rows of a batch: the lists themselves
    array = array_of(base)
    if array is None:
        return None
    return _compute_tensor_or_none(lambda: array[_numpy_index_within_item_limit(array, key)])


def set_in_tensor(target: Sequence, key: Value, value: Value) -> bool:
    """Do `batch[:, :5] = ...` in place; False where the place or the value is not known."""
    array, new = array_of(target), array_of(value)
    if array is None or new is None:
        return False
    try:
        array = array.copy()
        if new.dtype.kind == "f" and array.dtype.kind != "f":
            array = array.astype(np.float64)
        array[_numpy_index_within_item_limit(array, key)] = new
    except (NotComputableError, IndexError, ValueError, TypeError):
        return False
    _write_back(target, array)
    return True


def _write_back(target: Sequence, array: Array) -> None:
    """Put the numbers of an array into the lists of a tensor, which stay the same lists."""
    for place, one in enumerate(target.items):
        if isinstance(one, Sequence):
            _write_back(one, array[place])
        else:
            target.items[place] = Constant(array[place].item())


def _numpy_index_within_item_limit(array: Array, key: Value) -> Any:
    """What numpy takes as an index. Raises NotComputableError where it may choose more than `MAX_ITEMS` numbers: a list
    of indices may name one row of a batch a hundred thousand times.
    """
    index = _numpy_index_from_key(key)
    chosen = index if isinstance(index, tuple) else (index,)
    lists = [one for one in chosen if isinstance(one, np.ndarray) and one.dtype.kind != "b"]
    times = math.prod(np.broadcast_shapes(*(one.shape for one in lists)))
    if lists and times * _count_numbers_outside_indexed_dimensions(array, chosen) > MAX_ITEMS:
        raise NotComputableError
    return index


def _count_numbers_outside_indexed_dimensions(array: Array, chosen: tuple[Any, ...]) -> int:
    """The numbers in the dimensions of an array that no list of indices is for; at most so many."""
    numbers, dimension = array.size, 0
    for one in chosen:
        if one is Ellipsis:
            return int(array.size)  # which dimensions follow it is not worth the code
        if one is None:
            continue
        if isinstance(one, np.ndarray) and one.dtype.kind != "b":
            numbers //= max(array.shape[dimension], 1)
        dimension += one.ndim if isinstance(one, np.ndarray) and one.dtype.kind == "b" else 1
    return numbers


def _numpy_index_from_key(key: Value) -> Any:
    """What numpy takes as an index. Raises NotComputableError where a part is not known."""
    if isinstance(key, Slice):
        return slice(*(_limit_of_slice(one) for one in (key.start, key.stop, key.step)))
    if isinstance(key, Sequence) and key.kind == "tuple":
        return tuple(_numpy_index_from_key(one) for one in key.items)
    if isinstance(key, Sequence):
        array = array_of(key)
        if array is None:
            raise NotComputableError
        return array
    plain = constant_of(key)
    if plain is None or plain is Ellipsis or isinstance(plain, int):
        return plain
    raise NotComputableError


def _limit_of_slice(limit: Value | None) -> int | None:
    """One end or the step of a slice. Raises NotComputableError where it is not known."""
    plain = None if limit is None else constant_of(limit)
    if plain is None or type(plain) is int:
        return plain
    raise NotComputableError


def call_method_of_tensor(
    tensor: Sequence, name: str, args: tuple[Value, ...], keywords: dict[str, Value]
) -> Value | None:
    """The result of a method of a tensor; None where it is not known.

    A method whose name ends with `_` changes the tensor itself, as `masked_fill_` does.
    """
    if name in RETURNS_ITSELF:
        return tensor
    array = array_of(tensor)
    if array is None:
        return None
    if name == "tolist":
        return _nested_list(array)
    is_in_place = name.endswith("_") and not name.startswith("_")
    compute = TENSOR_METHODS.get(name.removesuffix("_"))
    if compute is None:
        return None
    result = _compute_tensor_or_none(lambda: compute(array, _plain_arguments(args, keywords)))
    if not is_in_place:
        return result
    changed = array_of(result)
    if changed is None or changed.shape != array.shape:
        return None
    _write_back(tensor, changed)
    return tensor


def _nested_list(array: Array) -> Value:
    """An array as lists in lists."""
    if array.ndim == 0:
        return Constant(array.item())
    if array.ndim == 1:
        return Sequence("list", [Constant(one) for one in array.tolist()])
    return Sequence("list", [_nested_list(one) for one in array])


def attribute_of_tensor(tensor: Sequence, name: str) -> Value | None:
    """`shape`, `T` and the like of a tensor; None for any other attribute, and where it is not known."""
    array = array_of(tensor) if name in ("shape", "ndim", "T") else None
    if array is None:
        return None
    if name == "shape":
        return Sequence("tuple", [Constant(one) for one in array.shape])
    return Constant(array.ndim) if name == "ndim" else tensor_of(array.T)


def call_function_of_tensors(
    name: str, args: tuple[Value, ...], keywords: dict[str, Value]
) -> Value | None:
    """The result of a function of torch or numpy on known numbers; None where it is not known."""
    package, _, function = name.partition(".")
    compute = TENSOR_FUNCTIONS.get(name)
    if compute is None and package in ("torch", "numpy"):
        compute = TENSOR_FUNCTIONS.get(function)
    if compute is None and package in ("torch", "numpy") and function in TENSOR_METHODS:
        method = TENSOR_METHODS[function]

        def compute(tensor_arguments: TensorArguments) -> Any:
            rest = TensorArguments(tensor_arguments.args[1:], tensor_arguments.keywords)
            return method(np.asarray(tensor_arguments.args[0]), rest)

    if compute is None:
        return None
    return _compute_tensor_or_none(lambda: compute(_plain_arguments(args, keywords)))


def _plain_arguments(args: tuple[Value, ...], keywords: dict[str, Value]) -> TensorArguments:
    """Arguments as plain values. Raises NotComputableError where one that matters is not known, or all are large."""
    count = 0
    for one in (*args, *keywords.values()):
        count = _count_numbers(one, count)
    ignored = ("device", "requires_grad", "non_blocking", "pin_memory", "out")
    return TensorArguments(
        tuple(_plain_argument(one) for one in args),
        {name: _plain_argument(one) for name, one in keywords.items() if name not in ignored},
    )


def _plain_argument(value: Value) -> Any:
    """A number, text, None, type, list of arrays, or array. Raises NotComputableError for anything else."""
    if isinstance(value, Library):
        dtype = DTYPES.get(value.name.rpartition(".")[2])
        if dtype is None:
            raise NotComputableError
        return np.dtype(dtype)
    if isinstance(value, Sequence) and value.kind == TENSOR:
        array = array_of(value)
        if array is None:
            raise NotComputableError
        return array
    if isinstance(value, Sequence) and any(isinstance(one, Sequence) for one in value.items):
        return [_plain_argument(one) for one in value.items]
    plain = constant_of(value)
    if plain is NO_CONSTANT:
        raise NotComputableError
    return plain


def _compute_tensor_or_none(compute: Callable[[], Any]) -> Value | None:
    """The result of a computation as a tensor; None where it fails or is too large.

    Whatever numpy raises for the user's numbers would be raised by torch as well: then nothing is known.
    """
    try:
        with np.errstate(all="ignore"):
            result = compute()
    except (NotComputableError, ValueError, TypeError, IndexError, ArithmeticError, KeyError):
        return None
    if isinstance(result, tuple):
        return Sequence("tuple", [Constant(one) for one in result])
    if isinstance(result, int | float | bool):
        return Constant(result)
    if not isinstance(result, np.ndarray | np.generic) or result.dtype.kind not in NUMBER_KINDS:
        return None
    is_small = result.size <= MAX_ITEMS and result.ndim <= MAX_DIMENSIONS
    return tensor_of(result) if is_small else None


# The table of what is computed


def _new_tensor_size_from_arguments(
    tensor_arguments: TensorArguments, first: int = 0
) -> tuple[int, ...]:
    """The size of a new tensor, given as numbers or as one tuple. Raises NotComputableError for a large one."""
    sizes = tensor_arguments.args[first:] or (tensor_arguments.keywords.get("size"),)
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        sizes = tuple(sizes[0])
    if not all(type(one) is int for one in sizes) or not 0 <= math.prod(sizes) <= MAX_ITEMS:
        raise NotComputableError
    return tuple(sizes)


def _apply_dtype_keyword(array: Array, tensor_arguments: TensorArguments) -> Array:
    """An array in the type that a call names."""
    dtype = tensor_arguments.keywords.get("dtype")
    return array if dtype is None else array.astype(dtype)


def _filled_tensor_maker(number: Any) -> Callable[[TensorArguments], Array]:
    """A function that makes a tensor of one number."""
    return lambda given: _apply_dtype_keyword(
        np.full(_new_tensor_size_from_arguments(given), number), given
    )


def _full(tensor_arguments: TensorArguments) -> Array:
    """`torch.full(size, number)`."""
    number = tensor_arguments.get(1, "fill_value")
    size = tensor_arguments.get(0, "size")
    return _apply_dtype_keyword(
        np.full(_new_tensor_size_from_arguments(TensorArguments((size,), {})), number),
        tensor_arguments,
    )


def _filled_like_tensor_maker(number: Any) -> Callable[[Array, TensorArguments], Array]:
    """A function that makes a tensor of one number in the shape of another."""
    return lambda array, given: _apply_dtype_keyword(np.full(array.shape, number), given)


def _make_tensor(tensor_arguments: TensorArguments) -> Array:
    """`torch.tensor(values)`. Raises ValueError for lists of unlike length, as torch does."""
    return _apply_dtype_keyword(np.asarray(tensor_arguments.get(0, "data")), tensor_arguments)


def _arange(tensor_arguments: TensorArguments) -> Array:
    """`torch.arange(start, end, step)`. Raises NotComputableError for a long one."""
    limits = [one for one in tensor_arguments.args if type(one) is int]
    if len(limits) != len(tensor_arguments.args) or len(range(*limits)) > MAX_ITEMS:
        raise NotComputableError
    return np.arange(*limits)


def _concatenate(tensor_arguments: TensorArguments) -> Array:
    """`torch.cat(tensors, dim)`."""
    return np.concatenate(tensor_arguments.get(0, "tensors"), axis=_axis(tensor_arguments, 1, 0))


def _stack(tensor_arguments: TensorArguments) -> Array:
    """`torch.stack(tensors, dim)`."""
    return np.stack(tensor_arguments.get(0, "tensors"), axis=_axis(tensor_arguments, 1, 0) or 0)


def _axis(
    tensor_arguments: TensorArguments, position: int, default: int | None = None
) -> int | None:
    """The dimension that a call names."""
    axis = tensor_arguments.get(position, "dim", tensor_arguments.keywords.get("axis", default))
    if axis is None or type(axis) is int:
        return axis
    raise NotComputableError


def _pad_last_dimensions(tensor_arguments: TensorArguments) -> Array:
    """`torch.nn.functional.pad(tensor, (left, right, ...), value=...)`: the last dimension comes first."""
    array, widths = np.asarray(tensor_arguments.args[0]), list(tensor_arguments.get(1, "pad"))
    value = tensor_arguments.get(3, "value", 0) or 0
    pairs = [(0, 0)] * (array.ndim - len(widths) // 2)
    pairs += [
        (widths[place], widths[place + 1]) for place in reversed(range(0, len(widths) - 1, 2))
    ]
    size = math.prod(
        length + max(left, 0) + max(right, 0)
        for length, (left, right) in zip(array.shape, pairs, strict=True)
    )
    if tensor_arguments.get(2, "mode", "constant") != "constant" or size > MAX_ITEMS:
        raise NotComputableError
    # A negative width cuts, as in torch.
    cuts = tuple(
        slice(max(-left, 0), array.shape[place] - max(-right, 0))
        for place, (left, right) in enumerate(pairs)
    )
    added = [(max(left, 0), max(right, 0)) for left, right in pairs]
    return np.pad(array[cuts], added, constant_values=value)


def _pad_sequence(tensor_arguments: TensorArguments) -> Array:
    """`pad_sequence(tensors, batch_first, padding_value, padding_side)`: rows filled up to the longest."""
    rows = [np.asarray(one) for one in tensor_arguments.get(0, "sequences")]
    is_batch_first = tensor_arguments.get(1, "batch_first", False)
    value = tensor_arguments.get(2, "padding_value", 0)
    side = tensor_arguments.get(3, "padding_side", "right")
    longest = max(len(one) for one in rows)
    if longest * len(rows) > MAX_ITEMS or any(one.ndim != 1 for one in rows):
        raise NotComputableError
    padded = [
        np.pad(
            one,
            (longest - len(one), 0) if side == "left" else (0, longest - len(one)),
            constant_values=value,
        )
        for one in rows
    ]
    array = np.stack(padded)
    return array if is_batch_first else array.T


def _where(tensor_arguments: TensorArguments) -> Array:
    """`torch.where(condition, one, other)`."""
    if len(tensor_arguments.args) != 3:
        raise NotComputableError
    condition, one, other = tensor_arguments.args
    _require_small_result(condition, one, other)
    return np.asarray(np.where(condition, one, other))


# Functions of numpy are named and not given: the page that checks a chat in a browser imports this module with a numpy
# that has only a part of them, and computes nothing with it.
def _reduction_function(name: str) -> Callable[[Array, TensorArguments], Any]:
    """A function that makes one number of a dimension, or of all."""

    def reduce(array: Array, tensor_arguments: TensorArguments) -> Any:
        keeps = bool(
            tensor_arguments.keywords.get(
                "keepdim", tensor_arguments.keywords.get("keepdims", False)
            )
        )
        return getattr(np, name)(array, axis=_axis(tensor_arguments, 0), keepdims=keeps)

    return reduce


def _max_or_min_function(name: str) -> Callable[[Array, TensorArguments], Any]:
    """`max` and `min`, which torch gives with their places where a dimension is named: then it is not computed."""

    def reduce(array: Array, tensor_arguments: TensorArguments) -> Any:
        if tensor_arguments.args or "dim" in tensor_arguments.keywords:
            raise NotComputableError
        return getattr(np, name)(array)

    return reduce


def _elementwise_function_of_two_tensors(name: str) -> Callable[[Array, TensorArguments], Array]:
    """A function of a tensor and another one, item by item: `ids.ne(pad)`."""

    def compute(array: Array, tensor_arguments: TensorArguments) -> Array:
        _require_small_result(array, tensor_arguments.args[0])
        return np.asarray(getattr(np, name)(array, tensor_arguments.args[0]))

    return compute


def _masked_fill(array: Array, tensor_arguments: TensorArguments) -> Array:
    """`labels.masked_fill(mask, -100)`."""
    mask = np.asarray(tensor_arguments.get(0, "mask"))
    if mask.dtype.kind != "b":
        raise NotComputableError
    _require_small_result(array, mask, tensor_arguments.get(1, "value"))
    return np.where(mask, tensor_arguments.get(1, "value"), array)


def _size_of(array: Array, tensor_arguments: TensorArguments) -> Any:
    """`ids.size()` or `ids.size(1)`."""
    axis = _axis(tensor_arguments, 0)
    return array.shape if axis is None else array.shape[axis]


def _numbers_or_one_tuple(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes as methods of tensors take them: `view(2, 3)` or `view((2, 3))`."""
    return args if len(args) != 1 or isinstance(args[0], int) else tuple(args[0])


def _view(array: Array, tensor_arguments: TensorArguments) -> Array:
    """`view` and `reshape`, of numbers or one tuple."""
    return array.reshape(_numbers_or_one_tuple(tensor_arguments.args))


def _expand(array: Array, tensor_arguments: TensorArguments) -> Array:
    """`expand`: -1 keeps a dimension."""
    sizes = _numbers_or_one_tuple(tensor_arguments.args)
    added = len(sizes) - array.ndim
    shape = [
        array.shape[place - added] if size == -1 and place >= added else size
        for place, size in enumerate(sizes)
    ]
    return np.broadcast_to(array, shape)


def _repeat(array: Array, tensor_arguments: TensorArguments) -> Array:
    """`repeat(2, 1)`. Raises NotComputableError where the result would be large."""
    times = _numbers_or_one_tuple(tensor_arguments.args)
    if array.size * math.prod(times) > MAX_ITEMS:
        raise NotComputableError
    return np.tile(array, times)


def _dtype_cast_method(dtype: Any) -> Callable[[Array, TensorArguments], Array]:
    """A method that changes the type: `mask.long()`."""
    return lambda array, _: array.astype(dtype)


def _convert_to_dtype_argument(array: Array, tensor_arguments: TensorArguments) -> Array:
    """`to(torch.long)`, `type(torch.bool)`, `astype(int)`."""
    dtypes = [
        one
        for one in (*tensor_arguments.args, *tensor_arguments.keywords.values())
        if isinstance(one, np.dtype)
    ]
    return array.astype(dtypes[0]) if dtypes else array


def _roll(array: Array, tensor_arguments: TensorArguments) -> Array:
    """`torch.roll(ids, shifts, dims)`."""
    axis = tensor_arguments.get(
        1, "dims", tensor_arguments.keywords.get("dim", tensor_arguments.keywords.get("axis"))
    )
    return np.roll(array, tensor_arguments.get(0, "shifts"), axis=axis)


def _flip(array: Array, tensor_arguments: TensorArguments) -> Array:
    """`flip(0)`, `flip([0, 1])`."""
    axes = _numbers_or_one_tuple(tensor_arguments.args)
    return np.flip(array, axis=tuple(axes or tensor_arguments.keywords["dims"]))


def _unsqueeze(array: Array, tensor_arguments: TensorArguments) -> Array:
    """`unsqueeze(0)`."""
    return np.expand_dims(array, _axis(tensor_arguments, 0) or 0)


def _squeeze(array: Array, tensor_arguments: TensorArguments) -> Array:
    """`squeeze()`, `squeeze(0)`, which leaves a dimension of more than one item."""
    axis = _axis(tensor_arguments, 0)
    if axis is not None and array.shape[axis] != 1:
        return array
    return np.squeeze(array, axis=axis)


RETURNS_ITSELF = ("detach", "contiguous", "cpu", "cuda", "numpy", "pin_memory", "requires_grad_")
"""Methods whose result shares its numbers with the tensor"""
TENSOR_METHODS: dict[str, Callable[[Array, TensorArguments], Any]] = {
    "all": _reduction_function("all"),
    "amax": _reduction_function("amax"),
    "amin": _reduction_function("amin"),
    "any": _reduction_function("any"),
    "argmax": lambda array, given: np.argmax(array, axis=_axis(given, 0)),
    "astype": _convert_to_dtype_argument,
    "bool": _dtype_cast_method(np.bool_),
    "clone": lambda array, _: array,
    "copy": lambda array, _: array,
    "cumsum": lambda array, given: np.cumsum(array, axis=_axis(given, 0)),
    "dim": lambda array, _: array.ndim,
    "eq": _elementwise_function_of_two_tensors("equal"),
    "expand": _expand,
    "fill": lambda array, given: np.full(array.shape, given.args[0]),
    "flatten": lambda array, _: array.reshape(-1),
    "flip": _flip,
    "float": _dtype_cast_method(np.float64),
    "full_like": lambda array, given: np.full(array.shape, given.get(0, "fill_value")),
    "ge": _elementwise_function_of_two_tensors("greater_equal"),
    "gt": _elementwise_function_of_two_tensors("greater"),
    "int": _dtype_cast_method(np.int64),
    "item": lambda array, _: array.item(),
    "le": _elementwise_function_of_two_tensors("less_equal"),
    "logical_and": _elementwise_function_of_two_tensors("logical_and"),
    "logical_not": lambda array, _: np.logical_not(array),
    "logical_or": _elementwise_function_of_two_tensors("logical_or"),
    "long": _dtype_cast_method(np.int64),
    "lt": _elementwise_function_of_two_tensors("less"),
    "masked_fill": _masked_fill,
    "max": _max_or_min_function("max"),
    "mean": _reduction_function("mean"),
    "min": _max_or_min_function("min"),
    "ne": _elementwise_function_of_two_tensors("not_equal"),
    "new_full": lambda _, given: _full(given),
    "new_ones": lambda _, given: _filled_tensor_maker(1)(given),
    "new_zeros": lambda _, given: _filled_tensor_maker(0)(given),
    "nonzero": lambda array, _: np.argwhere(array),
    "not_equal": _elementwise_function_of_two_tensors("not_equal"),
    "numel": lambda array, _: array.size,
    "ones_like": _filled_like_tensor_maker(1),
    "repeat": _repeat,
    "reshape": _view,
    "roll": _roll,
    "size": _size_of,
    "squeeze": _squeeze,
    "sum": _reduction_function("sum"),
    "t": lambda array, _: array.T,
    "to": _convert_to_dtype_argument,
    "transpose": lambda array, given: np.swapaxes(array, given.args[0], given.args[1]),
    "type": _convert_to_dtype_argument,
    "unsqueeze": _unsqueeze,
    "view": _view,
    "zero": lambda array, _: np.zeros_like(array),
    "zeros_like": _filled_like_tensor_maker(0),
}
"""Methods of a tensor -> how they are computed. Functions of torch with these names take the tensor first"""
TENSOR_FUNCTIONS: dict[str, Callable[[TensorArguments], Any]] = {
    "LongTensor": _make_tensor,
    "IntTensor": _make_tensor,
    "FloatTensor": lambda given: _make_tensor(given).astype(np.float64),
    "BoolTensor": lambda given: _make_tensor(given).astype(np.bool_),
    "arange": _arange,
    "array": _make_tensor,
    "as_tensor": _make_tensor,
    "asarray": _make_tensor,
    "cat": _concatenate,
    "concat": _concatenate,
    "concatenate": _concatenate,
    "from_numpy": _make_tensor,
    "full": _full,
    "nn.functional.pad": _pad_last_dimensions,
    "nn.utils.rnn.pad_sequence": _pad_sequence,
    "ones": _filled_tensor_maker(1),
    "stack": _stack,
    "tensor": _make_tensor,
    "where": _where,
    "zeros": _filled_tensor_maker(0),
}
"""Functions of torch and numpy -> how they are computed"""
