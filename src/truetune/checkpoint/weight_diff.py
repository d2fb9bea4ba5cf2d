"""Compares all weights with those before: how far every tensor, and every row of the embeddings,
moved.

All values are read, in stretches of rows, so memory does not grow with the model. Three comparisons: a model with its
base; an adapter's effective change (`s B A`) with its base; a merged model with base and adapter.

change = rms(after - before) / rms(before); a value counts as the same where after equals before, rounded to the format
that it is stored in. The trade-off: exact counts, at the price of reading both models from the disk once; where a
sample is enough, `compare_tensor_samples` takes one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.adapter_delta import (
    BaseTensorFinder,
    Floats,
    TensorDelta,
    adapter_deltas_and_uncomputed_tensors,
)
from truetune.checkpoint.compare_tensor_samples import map_tensor_into_memory
from truetune.checkpoint.find_input_embedding_and_output_head import EMBEDDING_NAMES, HEAD_NAMES
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES, to_float32

if TYPE_CHECKING:
    from truetune.checkpoint.load_checkpoint import Checkpoint

# Chosen, not measured: 1 MiB of float32, which stays in the cache of a core through the dozen passes over it.
STRETCH_VALUES = 1 << 18
"""Values of a stretch"""
Progress = Callable[[int, int], None]
"""Told the values that are done, and those that there are in all"""


class KeptChange(NamedTuple):
    """How much of an adapter's change in one tensor is left, after it was merged and rounded."""

    size: float
    """rms of the change that the adapter makes, over rms of the base"""
    changed: int
    """Values that the adapter changes"""
    lost: int
    """Those of them that came out as the base's alone, rounded the same way"""
    least: int
    """Those of them that must, because the change is smaller than the format can hold"""
    kept: float
    """Least-squares factor of the adapter's change in what is there: 1 where all is, 0 where nothing is, a / b where it
    was merged with the scale a instead of b"""
    best: float
    """What `kept` is where the merge is right, and only the format rounds"""
    error: float
    """rms of what is there minus what should be, over rms of the change; of the values that the adapter changes"""


@dataclass(frozen=True, slots=True)
class TokenRowChange:
    """How far each row of an embedding, one for each token, moved."""

    same: NDArray[np.bool_]
    """(rows,) bit-identical"""
    change: Floats
    """(rows,)"""


@dataclass(frozen=True, slots=True, eq=False)
class TensorMovement:
    """How far one tensor moved."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    same: int
    """Values that are bit-identical"""
    change: float
    """nan where there is nothing before"""
    rows: TokenRowChange | None = None
    merged: KeptChange | None = None

    @property
    def value_count(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    @property
    def share(self) -> float:
        """The share of its values that are bit-identical."""
        return self.same / max(1, self.value_count)

    @property
    def kind(self) -> str:
        """The kind of tensor: the name without the numbers of layers and experts, and what comes
        before them, `self_attn.q_proj.weight`.
        """
        parts = self.name.split(".")
        last = max((i for i, part in enumerate(parts) if part.isdecimal()), default=-1)
        return ".".join(parts[last + 1 :]) if last >= 0 else self.name


@dataclass(frozen=True)
class MovementManifest:
    """How far all tensors moved between before and after."""

    after: Checkpoint
    adapter: Checkpoint | None
    """The adapter whose change is measured: `after` itself, or the one that was merged"""
    tensors: tuple[TensorMovement, ...]
    left_out: tuple[str, ...]
    """Tensors that were not compared, with the reason"""

    @cached_property
    def tensors_by_module_kind(self) -> dict[str, tuple[TensorMovement, ...]]:
        """The tensors by kind of module, the least moved kind first."""
        values: dict[str, list[TensorMovement]] = {}
        for tensor in self.tensors:
            values.setdefault(tensor.kind, []).append(tensor)
        return {
            kind: tuple(group)
            for kind, group in sorted(values.items(), key=lambda item: -_identical_share(item[1]))
        }

    @cached_property
    def merged(self) -> KeptChange | None:
        """How much of the adapter's change is left in all tensors together; None without an
        adapter.
        """
        return sum_kept_changes(tensor for tensor in self.tensors if tensor.merged)


def compare_weights(
    after: Checkpoint, adapter: Checkpoint | None = None, *, progress: Progress | None = None
) -> MovementManifest:
    """Compare all values of `after` with those of its base, and where `adapter` was merged into it,
    with base and adapter.

    For an adapter alone, `after` is what it makes of its base, and `merged` what would be left in the base's format.
    """
    base = after.base.tensors if after.base else {}
    source = after if after.kind == "adapter" else adapter
    changes, unknown = (
        adapter_deltas_and_uncomputed_tensors(source, base or None) if source else ({}, [])
    )
    left_out = [f"{name}: not of a kind whose effect is computed here" for name in unknown]
    if after.kind == "adapter":
        pairs = [_TensorPair(name, None, delta.base, delta) for name, delta in changes.items()]
    else:
        pairs = list(_pair_tensors(after, base, changes, left_out))
    whole, done = sum(math.prod(pair.shape) for pair in pairs), 0
    values = []
    for pair in pairs:
        values.append(_compare_pair(pair))
        done += math.prod(pair.shape)
        if progress is not None:
            progress(done, whole)
    return MovementManifest(after, source, tuple(values), tuple(left_out))


class _TensorPair(NamedTuple):
    """A tensor before and after, with the adapter's change."""

    name: str
    after: StoredTensor | None
    """None for what an adapter makes"""
    before: StoredTensor | None
    """None where there is no base"""
    delta: TensorDelta | None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return next(t.shape for t in (self.after, self.delta, self.before) if t is not None)

    @property
    def dtype(self) -> str:
        """The format that the values are stored in, or would be."""
        stored = self.after or self.before
        return stored.dtype if stored else "F32"


def sum_kept_changes(tensors: Iterable[TensorMovement]) -> KeptChange | None:
    """How much of an adapter's change is left over all tensors, each weighed by its values and the
    size of its change.
    """
    weighted = _weigh_changes(tensors)
    changes = [change for change, _ in weighted]
    weight = sum(part for _, part in weighted)
    if not weight:
        return None
    kept = sum(change.kept * part for change, part in weighted) / weight
    best = sum(change.best * part for change, part in weighted) / weight
    error = math.sqrt(sum(change.error**2 * part for change, part in weighted) / weight)
    return KeptChange(
        size=_root_mean_square_size(weighted, weight),
        changed=sum(change.changed for change in changes),
        lost=sum(change.lost for change in changes),
        least=sum(change.least for change in changes),
        kept=kept,
        best=best,
        error=error,
    )


def _root_mean_square_size(weighted: list[tuple[KeptChange, float]], weight: float) -> float:
    """Root mean square of the sizes; a weight is values times squared size, so both are known from it."""
    values = sum(part / change.size**2 for change, part in weighted if change.size)
    return math.sqrt(weight / values) if values else math.nan


def _weigh_changes(tensors: Iterable[TensorMovement]) -> list[tuple[KeptChange, float]]:
    """Each change with its weight, the sum of its squares in units of the base; those without a base are left out."""
    return [
        (tensor.merged, tensor.value_count * tensor.merged.size**2)
        for tensor in tensors
        if tensor.merged and math.isfinite(tensor.merged.size)
    ]


def round_to_format(values: Floats, dtype: str) -> Floats:
    """Round float32 values to the nearest number of a format, ties to even; as float32."""
    if dtype == "BF16":
        # Half of the last bit that is kept, and one more where that bit is odd: ties go to even.
        bits = values.view(np.uint32)
        low = ((bits >> 16) & 1) + np.uint32(0x7FFF)
        return ((bits + low) & np.uint32(0xFFFF0000)).view(np.float32)
    if dtype == "F16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    return values


def _pair_tensors(
    after: Checkpoint,
    base: Mapping[str, StoredTensor],
    changes: Mapping[str, TensorDelta],
    left_out: list[str],
) -> Iterator[_TensorPair]:
    """The tensors of a model, each with the base's; names as in `Start`."""
    # `left_out` is filled as a side product: what could not be compared must not look as if it had been.
    start, paired_names = BaseTensorFinder(base, {}), set()
    for name, tensor in after.tensors.items():
        place, before = start(name)
        paired_names.add(place)
        if before is None or (
            before.shape != tensor.shape and not _is_resized_embedding(tensor, before)
        ):
            left_out.append(
                f"{name} {list(tensor.shape)}: the base has"
                f" {list(before.shape) if before else 'none'}"
            )
        elif not (
            tensor.whole and before.whole and {tensor.dtype, before.dtype} <= NUMPY_TYPES.keys()
        ):
            left_out.append(f"{name}: {tensor.dtype} against {before.dtype}, no plain numbers")
        else:
            yield _TensorPair(name, tensor, before, changes.get(place))
    left_out += [f"{name}: only in the base" for name in base if name not in paired_names]


def _is_resized_embedding(tensor: StoredTensor, before: StoredTensor) -> bool:
    """Is a tensor an embedding that was given more rows, or lost some?"""
    return (
        tensor.name.endswith((*EMBEDDING_NAMES, *HEAD_NAMES))
        and tensor.shape[1:] == before.shape[1:]
    )


@dataclass
class _ChangeSums:
    """Sums over the values of one tensor, of the adapter's change and of what is left of it."""

    same: int = 0
    moved: float = 0.0
    base: float = 0.0
    change: float = 0.0
    along: float = 0.0
    error: float = 0.0
    best: float = 0.0
    changed: int = 0
    lost: int = 0
    least: int = 0

    def kept(self, size: float) -> KeptChange:
        """What is left of the change; `size` is that of the change itself, and must not be 0."""
        along, best = self.along / self.change, self.best / self.change
        error = math.sqrt(self.error / self.change)
        return KeptChange(size, self.changed, self.lost, self.least, along, best, error)


def _compare_pair(pair: _TensorPair) -> TensorMovement:
    """Compare all values of one tensor, before and after; each stretch is read once and summed up."""
    form, dtype = pair.shape, pair.dtype
    rows = None
    if pair.name.endswith((*EMBEDDING_NAMES, *HEAD_NAMES)) and len(form) == 2:
        rows = TokenRowChange(np.zeros(form[0], np.bool_), np.zeros(form[0], np.float32))
    sums = _ChangeSums()
    for start, stop in _split_rows_into_stretches(form):
        base = _read_rows_padded(pair.before, start, stop, form)
        adapted = pair.delta.rows(start, stop, base) if pair.delta is not None else None
        after = (
            _read_rows_padded(pair.after, start, stop, form) if pair.after is not None else adapted
        )
        assert after is not None
        # A base in float32 and a model in bfloat16: rounding alone is no movement.
        stored = round_to_format(base, dtype)
        difference = after - base
        equal = after == stored
        sums.same += int(equal.sum())
        sums.moved += _square_sum(difference)
        sums.base += _square_sum(base)
        if rows is not None:
            rows.same[start:stop] = equal.all(axis=1)
            # Rows of zeros (padding of the vocabulary) would divide by zero.
            lengths = np.maximum(_row_norms(base), 1e-30)
            rows.change[start:stop] = _row_norms(difference) / lengths
        if adapted is not None:
            there = after if pair.after is not None else round_to_format(adapted, dtype)
            _add_kept_change(sums, adapted, base, stored, there, dtype)
    kept = None
    if pair.delta is not None and sums.change:
        kept = sums.kept(_relative_to_base(pair, sums.change, sums.base))
    change = _relative_to_base(pair, sums.moved, sums.base)
    return TensorMovement(pair.name, dtype, form, sums.same, change, rows, kept)


def _relative_to_base(pair: _TensorPair, squares: float, base: float) -> float:
    """Root of a sum of squares over the base's; nan where there is no base to be a share of."""
    return math.nan if pair.before is None else _root_ratio(squares, base)


def _add_kept_change(
    sums: _ChangeSums, adapted: Floats, base: Floats, stored: Floats, there: Floats, dtype: str
) -> None:
    """Add a stretch of values to the sums of what is left of the adapter's change."""
    # `best` is what a right merge would have stored: the loss that the format alone causes.
    change, best = adapted - base, round_to_format(adapted, dtype)
    # Values that the adapter leaves alone tell nothing of the merge.
    touched = change != 0
    sums.change += _square_sum(change)
    sums.along += _dot(there - stored, change)
    sums.best += _dot(best - stored, change)
    sums.error += _square_sum((there - adapted)[touched])
    sums.changed += int(touched.sum())
    sums.lost += int((touched & (there == stored)).sum())
    sums.least += int((touched & (best == stored)).sum())


def _split_rows_into_stretches(form: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """(start, stop) of stretches of whole rows, so that those of an embedding can be judged one by
    one.
    """
    # Whole rows, so that those of an embedding can be judged one by one; at least one, however wide.
    rows, width = (form[0], math.prod(form[1:])) if form else (1, 1)
    step = max(1, STRETCH_VALUES // max(1, width))
    return ((start, min(rows, start + step)) for start in range(0, rows, step))


def _read_rows_padded(
    tensor: StoredTensor | None, start: int, stop: int, form: tuple[int, ...]
) -> Floats:
    """Rows of a tensor as float32; zeros where there is none, and where it is shorter."""
    rows = np.zeros(0, np.float32)
    if tensor is not None:
        rows = to_float32(map_tensor_into_memory(tensor)[start:stop], tensor.dtype)
    missing = stop - start - len(rows)
    if not missing:
        return rows
    # New tokens have no row before: as zeros, their change is the whole row.
    padding = np.zeros((missing, *form[1:]), np.float32)
    return np.concatenate([rows.reshape(-1, *form[1:]), padding])


def _square_sum(values: Floats) -> float:
    """The sum of the squares."""
    return _dot(values, values)


def _dot(a: Floats, b: Floats) -> float:
    """The scalar product: float32 within a stretch, float64 over all of them."""
    return float(np.vdot(a, b))


def _row_norms(values: Floats) -> Floats:
    """The Euclidean norm of each row."""
    return np.asarray(np.sqrt(np.square(values).sum(axis=1)), dtype=np.float32)


def _root_ratio(part: float, whole: float) -> float:
    """Root of part over whole; infinite where only the whole is 0, and 0 where both are."""
    return math.sqrt(part / whole) if whole else math.inf if part else 0.0


def _identical_share(group: list[TensorMovement]) -> float:
    """The share of values of a group of tensors that are bit-identical."""
    return sum(t.same for t in group) / max(1, sum(t.value_count for t in group))
