"""The movement manifest: how far every tensor, and every row of the embeddings, is from what it was before.

All values are read, in stretches of rows, so memory does not grow with the model. Three comparisons: a model with its
base; an adapter's effective change (`s B A`) with the base it goes on; a merged model with base and adapter.

change = rms(after - before) / rms(before); a value counts as the same where after equals before, rounded to the format
that it is stored in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.bits import PLAIN, floats
from truetune.checkpoint.compare import mapped
from truetune.checkpoint.delta import Delta, Floats, Start, deltas
from truetune.checkpoint.embedding import EMBEDDINGS, HEADS
from truetune.checkpoint.safetensors import Tensor

if TYPE_CHECKING:
    from truetune.checkpoint.checkpoint import Checkpoint

VALUES = 1 << 18
"""Values of a stretch"""
Progress = Callable[[int, int], None]
"""Told the values that are done, and those that there are in all"""


class Kept(NamedTuple):
    """What is left of an adapter's change in one tensor, after it was merged and rounded."""

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
    was merged with the scale a in place of b"""
    best: float
    """What `kept` is where the merge is right, and only the format rounds"""
    error: float
    """rms of what is there minus what should be, over rms of the change; of the values that the adapter changes"""


@dataclass(frozen=True, slots=True)
class Rows:
    """A matrix with one row for each token."""

    same: NDArray[np.bool_]
    """(rows,) bit-identical"""
    change: Floats
    """(rows,)"""


@dataclass(frozen=True, slots=True, eq=False)
class Movement:
    """One tensor, before and after."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    same: int
    """Values that are bit-identical"""
    change: float
    """nan where there is nothing before"""
    rows: Rows | None = None
    merged: Kept | None = None

    @property
    def values(self) -> int:
        return math.prod(self.shape)

    @property
    def share(self) -> float:
        """Of bit-identical values"""
        return self.same / max(1, self.values)

    @property
    def kind(self) -> str:
        """The name without the numbers of layers and experts, and what stands before them: `self_attn.q_proj.weight`"""
        parts = self.name.split(".")
        last = max((i for i, part in enumerate(parts) if part.isdecimal()), default=-1)
        return ".".join(parts[last + 1 :]) if last >= 0 else self.name


@dataclass(frozen=True)
class Manifest:
    """What moved between before and after."""

    after: Checkpoint
    adapter: Checkpoint | None
    """The adapter whose change is measured: `after` itself, or the one that was merged"""
    tensors: tuple[Movement, ...]
    left_out: tuple[str, ...]
    """Tensors that were not compared, with the reason"""

    @cached_property
    def by_kind(self) -> dict[str, tuple[Movement, ...]]:
        """Tensors of one kind of module, the least moved kind first"""
        found: dict[str, list[Movement]] = {}
        for tensor in self.tensors:
            found.setdefault(tensor.kind, []).append(tensor)
        return {
            kind: tuple(group)
            for kind, group in sorted(found.items(), key=lambda item: -_share(item[1]))
        }

    @cached_property
    def merged(self) -> Kept | None:
        """Of all tensors together; None without an adapter"""
        return total(tensor for tensor in self.tensors if tensor.merged)


def manifest(
    after: Checkpoint, adapter: Checkpoint | None = None, *, progress: Progress | None = None
) -> Manifest:
    """Compare all values of `after` with those of its base, and where `adapter` was merged into it, with base and
    adapter.

    For an adapter alone, `after` is what it makes of its base, and `merged` what would be left in the base's format.
    """
    base = after.base.tensors if after.base else {}
    source = after if after.kind == "adapter" else adapter
    changes, unknown = deltas(source, base or None) if source else ({}, [])
    left_out = [f"{name}: not of a kind whose effect is computed here" for name in unknown]
    if after.kind == "adapter":
        pairs = [_Pair(name, None, delta.base, delta) for name, delta in changes.items()]
    else:
        pairs = list(_pairs(after, base, changes, left_out))
    whole, done = sum(math.prod(pair.shape) for pair in pairs), 0
    found = []
    for pair in pairs:
        found.append(_compare(pair))
        done += math.prod(pair.shape)
        if progress is not None:
            progress(done, whole)
    return Manifest(after, source, tuple(found), tuple(left_out))


class _Pair(NamedTuple):
    """A tensor before and after"""

    name: str
    after: Tensor | None
    """None for what an adapter makes"""
    before: Tensor | None
    """None where there is no base"""
    delta: Delta | None

    @property
    def shape(self) -> tuple[int, ...]:
        return next(t.shape for t in (self.after, self.delta, self.before) if t is not None)


def total(tensors: Iterable[Movement]) -> Kept | None:
    """Over all tensors, each weighted by its values and the size of its change."""
    parts = [
        (t.merged, t.values * t.merged.size**2)
        for t in tensors
        if t.merged and math.isfinite(t.merged.size)
    ]
    weight = sum(w for _, w in parts)
    if not weight:
        return None
    values = sum(w / kept.size**2 for kept, w in parts if kept.size)
    return Kept(
        size=math.sqrt(weight / values) if values else math.nan,
        changed=sum(kept.changed for kept, _ in parts),
        lost=sum(kept.lost for kept, _ in parts),
        least=sum(kept.least for kept, _ in parts),
        kept=sum(kept.kept * w for kept, w in parts) / weight,
        best=sum(kept.best * w for kept, w in parts) / weight,
        error=math.sqrt(sum(kept.error**2 * w for kept, w in parts) / weight),
    )


def rounded(values: Floats, dtype: str) -> Floats:
    """To the nearest number of a format, ties to even; as float32."""
    if dtype == "BF16":
        bits = values.view(np.uint32)
        low = ((bits >> 16) & 1) + np.uint32(0x7FFF)
        return ((bits + low) & np.uint32(0xFFFF0000)).view(np.float32)
    if dtype == "F16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    return values


def _pairs(
    after: Checkpoint, base: Mapping[str, Tensor], changes: Mapping[str, Delta], left_out: list[str]
) -> Iterator[_Pair]:
    """The tensors of a model, each with the base's; names as in `Start`."""
    start, seen = Start(base, {}), set()
    for name, tensor in after.tensors.items():
        place, before = start(name)
        seen.add(place)
        if before is None or (before.shape != tensor.shape and not _longer(tensor, before)):
            left_out.append(
                f"{name} {list(tensor.shape)}: the base has"
                f" {list(before.shape) if before else 'none'}"
            )
        elif not (tensor.whole and before.whole and {tensor.dtype, before.dtype} <= PLAIN.keys()):
            left_out.append(f"{name}: {tensor.dtype} against {before.dtype}, no plain numbers")
        else:
            yield _Pair(name, tensor, before, changes.get(place))
    left_out += [f"{name}: only in the base" for name in base if name not in seen]


def _longer(tensor: Tensor, before: Tensor) -> bool:
    """An embedding that was given more rows, or lost some"""
    return tensor.name.endswith((*EMBEDDINGS, *HEADS)) and tensor.shape[1:] == before.shape[1:]


@dataclass
class _Sums:
    """Over the values of one tensor"""

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

    def kept(self, size: float) -> Kept:
        along, best = self.along / self.change, self.best / self.change
        error = math.sqrt(self.error / self.change)
        return Kept(size, self.changed, self.lost, self.least, along, best, error)


def _compare(pair: _Pair) -> Movement:
    (name, tensor, before, delta), form = pair, pair.shape
    dtype = tensor.dtype if tensor else before.dtype if before else "F32"
    tokens = name.endswith((*EMBEDDINGS, *HEADS)) and len(form) == 2
    same, moves = (
        np.zeros(form[0] if tokens else 0, np.bool_),
        np.zeros(form[0] if tokens else 0, np.float32),
    )
    sums = _Sums()
    for start, stop in _stretches(form):
        b = _rows(before, start, stop, form)
        made = delta.rows(start, stop, b) if delta is not None else None
        a = _rows(tensor, start, stop, form) if tensor is not None else made
        assert a is not None
        stored = rounded(b, dtype)
        difference = a - b
        equal = a == stored
        sums.same += int(equal.sum())
        sums.moved += _square(difference)
        sums.base += _square(b)
        if tokens:
            same[start:stop] = equal.all(axis=1)
            moves[start:stop] = _norms(difference) / np.maximum(_norms(b), 1e-30)
        if made is not None:
            _merged(sums, made, b, stored, a if tensor is not None else rounded(made, dtype), dtype)
    kept = None
    if delta is not None and sums.change:
        kept = sums.kept(_ratio(sums.change, sums.base) if before else math.nan)
    change = _ratio(sums.moved, sums.base) if before else math.nan
    return Movement(
        name, dtype, form, sums.same, change, Rows(same, moves) if tokens else None, kept
    )


def _merged(
    sums: _Sums, made: Floats, base: Floats, stored: Floats, there: Floats, dtype: str
) -> None:
    change, best = made - base, rounded(made, dtype)
    touched = change != 0
    sums.change += _square(change)
    sums.along += _dot(there - stored, change)
    sums.best += _dot(best - stored, change)
    sums.error += _square((there - made)[touched])
    sums.changed += int(touched.sum())
    sums.lost += int((touched & (there == stored)).sum())
    sums.least += int((touched & (best == stored)).sum())


def _stretches(form: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    rows, width = (form[0], math.prod(form[1:])) if form else (1, 1)
    step = max(1, VALUES // max(1, width))
    return ((start, min(rows, start + step)) for start in range(0, rows, step))


def _rows(tensor: Tensor | None, start: int, stop: int, form: tuple[int, ...]) -> Floats:
    """Rows of a tensor; zeros where there is none, and where it is shorter"""
    found = (
        floats(mapped(tensor)[start:stop], tensor.dtype)
        if tensor is not None
        else np.zeros(0, np.float32)
    )
    missing = stop - start - len(found)
    if not missing:
        return found
    return np.concatenate(
        [found.reshape(-1, *form[1:]), np.zeros((missing, *form[1:]), np.float32)]
    )


def _square(values: Floats) -> float:
    return _dot(values, values)


def _dot(a: Floats, b: Floats) -> float:
    """float32 within a stretch, float64 over all of them"""
    return float(np.vdot(a, b))


def _norms(values: Floats) -> Floats:
    return np.asarray(np.sqrt(np.square(values).sum(axis=1)), dtype=np.float32)


def _ratio(part: float, whole: float) -> float:
    return math.sqrt(part / whole) if whole else math.inf if part else 0.0


def _share(group: list[Movement]) -> float:
    return sum(t.same for t in group) / max(1, sum(t.values for t in group))
