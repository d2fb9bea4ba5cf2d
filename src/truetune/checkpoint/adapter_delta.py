"""Computes what an adapter makes of each tensor of its base, from the files alone, some rows at a
time.

W' = W + s B A with s = alpha / r, or alpha / sqrt(r) with rsLoRA (Hu et al. 2021, arXiv 2106.09685; Kalajdzievski 2023,
arXiv 2312.03732); DoRA scales each row of W' to a learned length (Liu et al. 2024, arXiv 2402.09353).

The trade-off: peft is not asked, so that neither torch nor the model's memory is needed; parts of adapters whose effect
is not computed here (`target_parameters` on other parameters than those of experts, DoRA on embeddings, other methods)
are named, never guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.adapter_tensor_names import (
    BASE_LAYER,
    FACTOR_NAMES,
    PEFT_NAME_PARTS,
    AdapterTensor,
    find_replacement_tensors,
    group_low_rank_tensors,
    parse_adapter_tensors,
)
from truetune.checkpoint.compare_tensor_samples import map_tensor_into_memory
from truetune.checkpoint.expert_adapter_delta import (
    ExpertFactors,
    ExpertPair,
    ExpertTensor,
    find_expert_pairs,
    tensors_changed_by_pair,
)
from truetune.checkpoint.find_input_embedding_and_output_head import HEAD_NAMES, find_embedding
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES, to_float32

if TYPE_CHECKING:
    from truetune.checkpoint.load_checkpoint import Checkpoint

Floats = NDArray[np.float32]
ORIGINAL_MODULE = ".original_module."
"""In the names of copies that peft keeps of what `modules_to_save` replaces"""


@dataclass(frozen=True)
class TensorDelta:
    """What the adapter does to one tensor of the base."""

    name: str
    """Of the base's tensor"""
    base: StoredTensor | None
    """What it starts from; None where the base is not available"""
    shape: tuple[int, ...]

    def rows(self, start: int, stop: int, base: Floats) -> Floats:
        """Rows `start` to `stop` of the tensor with the adapter, float32, from those of the base."""
        raise NotImplementedError


@dataclass(frozen=True)
class LowRankDelta(TensorDelta):
    """The change that is a product of two thin matrices, times a scale."""

    left: StoredTensor
    """B (rows, r), or A of an embedding (r, rows)"""
    right: StoredTensor
    scale: float
    turned: bool
    """The weight is stored as (in, out), or is an embedding"""
    magnitude: StoredTensor | None = None

    @cached_property
    def factors(self) -> tuple[Floats, Floats]:
        """The two factors, of (rows, r) and (r, columns)."""
        left, right = (
            to_float32(map_tensor_into_memory(tensor), tensor.dtype)
            for tensor in (self.left, self.right)
        )
        return (right.T, left.T) if self.turned else (left, right)

    def change_of_rows(self, start: int, stop: int) -> Floats:
        """Rows `start` to `stop` of the change, s B A."""
        left, right = self.factors
        return np.asarray(np.float32(self.scale) * (left[start:stop] @ right), dtype=np.float32)

    def rows(self, start: int, stop: int, base: Floats) -> Floats:
        """Rows `start` to `stop` of the base with the change added, each scaled to its length with DoRA."""
        updated = base + self.change_of_rows(start, stop)
        # DoRA: the direction is learned apart from the length of each row.
        if self.magnitude is not None:
            length = to_float32(
                map_tensor_into_memory(self.magnitude).reshape(-1)[start:stop], self.magnitude.dtype
            )
            updated *= (length / np.linalg.norm(updated, axis=1))[:, None]
        return updated


@dataclass(frozen=True)
class ExpertDelta(TensorDelta):
    """The change of experts by one pair of factors on all experts of a layer."""

    place: ExpertTensor
    factors: ExpertFactors

    def rows(self, start: int, stop: int, base: Floats) -> Floats:
        """Rows `start` to `stop` of the tensor, which are whole experts where it holds all of them."""
        if self.place.expert is None:
            return np.stack([row + self._change(start + i) for i, row in enumerate(base)])
        first = self.place.first_row
        return base + self._change(self.place.expert)[first + start : first + stop]

    def _change(self, expert: int) -> Floats:
        """The change of one expert, as it is stored."""
        change = self.factors.change_of_expert(expert)
        return change.T if self.place.is_turned else change


@dataclass(frozen=True)
class ReplacedTensor(TensorDelta):
    """Another tensor in the place of the base's (`modules_to_save`, biases)."""

    tensor: StoredTensor

    def rows(self, start: int, stop: int, base: Floats) -> Floats:
        """Rows `start` to `stop` of the tensor that stands in the place of the base's."""
        return to_float32(map_tensor_into_memory(self.tensor)[start:stop], self.tensor.dtype)


@dataclass(frozen=True)
class ReplacedRows(TensorDelta):
    """Other rows in the place of those of some tokens (`trainable_token_indices`)."""

    ids: tuple[int, ...]
    tensor: StoredTensor

    def rows(self, start: int, stop: int, base: Floats) -> Floats:
        """Rows `start` to `stop` of the base, with those of the replaced tokens exchanged."""
        updated = base.copy()
        values = to_float32(map_tensor_into_memory(self.tensor), self.tensor.dtype)
        for id, row in zip(self.ids, values, strict=True):
            if start <= id < stop:
                updated[id - start] = row
        return updated


def adapter_deltas_and_uncomputed_tensors(
    adapter: Checkpoint, base: Mapping[str, StoredTensor] | None
) -> tuple[dict[str, TensorDelta], list[str]]:
    """(name of the base's tensor -> what the adapter makes of it, the adapter's tensors whose
    effect can't be computed here).
    """
    parsed = parse_adapter_tensors(adapter.tensors)
    # peft saves a copy of the base's embedding where new rows are trained: the delta starts from that one.
    copies = {one.whole: one.tensor for one in parsed if f".{BASE_LAYER}.weight" in one.tensor.name}
    start = BaseTensorFinder(base, copies)
    replaced = _list_replacements(adapter)
    done = {tensor.name for tensor in copies.values()}
    computable: dict[str, TensorDelta] = {}
    unreadable: dict[str, list[str]] = {}
    for delta, sources in _deltas_with_source_tensors(adapter, parsed, replaced, start):
        done.update(sources)
        # Of two for one place the later counts: it replaces what the first one changes.
        computable.pop(delta.name, None)
        unreadable.pop(delta.name, None)
        if _can_read_tensors(delta):
            computable[delta.name] = delta
        else:
            unreadable[delta.name] = sources
    left_out = _list_tensors_without_delta(parsed, done, replaced)
    return computable, [*left_out, *chain.from_iterable(unreadable.values())]


def _deltas_with_source_tensors(
    adapter: Checkpoint,
    parsed: list[AdapterTensor],
    replaced: Mapping[str, StoredTensor],
    start: BaseTensorFinder,
) -> Iterator[tuple[TensorDelta, list[str]]]:
    """What an adapter makes of each tensor of the base, with the names of its own tensors that make it."""
    config = adapter.adapter_config
    pairs = find_expert_pairs(parsed, config)
    yield from _expert_deltas(pairs, config, start)
    on_experts = {tensor.name for pair in pairs for tensor in (pair.a, pair.b)}
    others = {name: tensor for name, tensor in adapter.tensors.items() if name not in on_experts}
    for module, parts in group_low_rank_tensors(others).items():
        low_rank = _make_low_rank_delta(module, parts, config, start)
        if low_rank is not None:
            yield low_rank, [tensor.name for tensor in parts.values()]
    for name, tensor in replaced.items():
        place, before = start(name)
        yield ReplacedTensor(place, before, tensor.shape, tensor), [tensor.name]
    for one in parsed:
        rows = _make_row_delta(one, config, start)
        if rows is not None:
            yield rows, [one.tensor.name]


def _expert_deltas(
    pairs: list[ExpertPair], config: Mapping[str, Any], start: BaseTensorFinder
) -> Iterator[tuple[TensorDelta, list[str]]]:
    """What the pairs on parameters of experts make of the base's tensors; none where that can't be told."""
    names = [name for name in config.get("target_parameters") or () if isinstance(name, str)]
    for pair in pairs:
        for place in tensors_changed_by_pair(pair, names, start.base or {}):
            rank = pair.a.shape[0] // place.experts
            scale = adapter_scale(config, f"{pair.module}.{place.parameter}", rank)
            tensor = place.tensor
            if scale is None or not _are_readable((pair.a, pair.b, tensor)):
                continue
            factors = ExpertFactors(pair, place.experts, scale)
            delta = ExpertDelta(tensor.name, tensor, tensor.shape, place, factors)
            yield delta, [pair.a.name, pair.b.name]


def _list_replacements(adapter: Checkpoint) -> dict[str, StoredTensor]:
    """Name in the base -> the tensor in its place; without the copies of what `modules_to_save` replaces."""
    return {
        name: tensor
        for name, tensor in find_replacement_tensors(adapter.tensors).items()
        if ORIGINAL_MODULE not in name
    }


def _list_tensors_without_delta(
    parsed: list[AdapterTensor], done: set[str], replaced: Mapping[str, StoredTensor]
) -> list[str]:
    """Names of the tensors that no delta accounts for."""
    unknown = []
    for one in parsed:
        is_known = one.tensor.name in done or ORIGINAL_MODULE in one.tensor.name
        if not is_known and (one.part or one.whole not in replaced):
            unknown.append(one.tensor.name)
    return unknown


def _make_row_delta(
    one: AdapterTensor, config: Mapping[str, Any], start: BaseTensorFinder
) -> ReplacedRows | None:
    """The rows of some tokens that a tensor of the adapter replaces; None where it is no such tensor."""
    if one.part not in PEFT_NAME_PARTS[:2]:
        return None
    ids = _trained_token_ids(config, one.module)
    if ids is None:
        return None
    name, before = start(f"{one.module}.weight")
    # Without as many rows as ids it can't be said which row is whose.
    if before is None or len(ids) != one.tensor.shape[0]:
        return None
    return ReplacedRows(name, before, before.shape, ids, one.tensor)


@dataclass(frozen=True)
class BaseTensorFinder:
    """Finds the base's tensor of a name. Files of one model may differ in what stands before it, and a tied head has
    none of its own: it starts as the embedding."""

    base: Mapping[str, StoredTensor] | None
    copies: Mapping[str, StoredTensor]
    """Of base tensors, that peft saved beside the adapter"""

    @cached_property
    def base_names_by_shortened_name(self) -> dict[str, str]:
        """Name without its first part -> name in the base."""
        return {name.partition(".")[2]: name for name in self.base or ()}

    def __call__(self, name: str) -> tuple[str, StoredTensor | None]:
        if self.base is None:
            return name, self.copies.get(name)
        short = name.partition(".")[2]
        # Models are saved with and without a prefix (`model.`, `language_model.`): the same name, or one part less or
        # more.
        place = next(
            (
                n
                for n in (name, short, self.base_names_by_shortened_name.get(name))
                if n is not None and n in self.base
            ),
            name,
        )
        tensor = self.copies.get(name) or self.base.get(place)
        if (
            tensor is None
            and name.endswith(HEAD_NAMES)
            and (into := find_embedding(self.base)) is not None
        ):
            tensor = into.tensor
        return place, tensor


def _make_low_rank_delta(
    module: str,
    parts: Mapping[str, StoredTensor],
    config: Mapping[str, Any],
    start: BaseTensorFinder,
) -> LowRankDelta | None:
    """The product that peft adds to a module's weight; None where its effect is not computed here."""
    names = next((pair for pair in FACTOR_NAMES if {*pair} <= parts.keys()), None)
    if names is None:
        return None
    a, b = parts[names[0]], parts[names[1]]
    if not _are_low_rank_factors(a, b):
        return None
    turned = _is_stored_transposed(names, config)
    magnitude = parts.get("lora_magnitude_vector")
    scale = adapter_scale(config, module, a.shape[0])
    # DoRA's lengths are those of rows of the stored weight only where it is not turned.
    if scale is None or (turned and magnitude is not None):
        return None
    name, before = start(f"{module}.weight")
    rows, columns = b.shape[0], a.shape[1]
    shape = (columns, rows) if turned else (rows, columns)
    if before is not None and before.shape != shape:
        return None
    return LowRankDelta(name, before, shape, b, a, scale, turned, magnitude)


def _is_stored_transposed(names: tuple[str, str], config: Mapping[str, Any]) -> bool:
    """Is the weight stored as (in, out)? So are embeddings, and the layers of GPT-2 (`fan_in_fan_out`)."""
    return names == FACTOR_NAMES[1] or bool(config.get("fan_in_fan_out"))


def _are_low_rank_factors(a: StoredTensor, b: StoredTensor) -> bool:
    """Are these two matrices (r, in) and (out, r) of one product?"""
    return len(a.shape) == 2 and len(b.shape) == 2 and a.shape[0] == b.shape[1]


def adapter_scale(
    config: Mapping[str, Any], module: str, rank: int, *, rslora: bool | None = None
) -> float | None:
    """The scale of one module's product, as peft computes it; None where adapter_config.json does not give it."""
    alpha = config.get("lora_alpha")
    for pattern, other in (config.get("alpha_pattern") or {}).items():
        if pattern == module or module.endswith(f".{pattern}") or _matches_pattern(pattern, module):
            alpha = other
            break
    if not isinstance(alpha, int | float) or rank < 1:
        return None
    # `rslora` is for a merge that was made with the other scale: the caller tries both.
    root = bool(config.get("use_rslora")) if rslora is None else rslora
    return alpha / math.sqrt(rank) if root else alpha / rank


def _matches_pattern(pattern: str, module: str) -> bool:
    """Does a module match a key of adapter_config.json? peft takes the keys as patterns; those of
    names and stars alone are tried, so that none can run for ever.
    """
    # Nested repeats take exponential time, and adapter_config.json is anybody's.
    if re.search(r"[+*}]\)?[+*{]|\)[+*{]", pattern) or len(pattern) > 200:
        return False
    try:
        return re.match(rf"(.*\.)?({pattern})$", module) is not None
    except re.error:
        return False


def _trained_token_ids(config: Mapping[str, Any], module: str) -> tuple[int, ...] | None:
    """The ids of the tokens whose rows of a module are trained, by adapter_config.json; None where
    none are.
    """
    token_ids = config.get("trainable_token_indices")
    if isinstance(token_ids, dict):
        named = [
            ids for name, ids in token_ids.items() if module == name or module.endswith(f".{name}")
        ]
        # A head that is tied to the embedding is trained with its rows.
        tied = list(token_ids.values()) if f"{module}.weight".endswith(HEAD_NAMES) else []
        token_ids = next(iter([*named, *tied]), None)
    if not isinstance(token_ids, list) or not all(type(id) is int for id in token_ids):
        return None
    return tuple(token_ids)


def _can_read_tensors(delta: TensorDelta) -> bool:
    """Are the tensors of a delta whole, and of a dtype that numpy reads?"""
    return _are_readable(t for t in vars(delta).values() if isinstance(t, StoredTensor))


def _are_readable(tensors: Iterable[StoredTensor]) -> bool:
    """Are tensors whole, and of a dtype that numpy reads?"""
    return all(tensor.whole and tensor.dtype in NUMPY_TYPES for tensor in tensors)
