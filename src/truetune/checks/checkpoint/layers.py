"""Layers among the names of tensors: what each layer of a stack holds."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

NAMES = ("layers", "layer", "blocks", "block", "h")
"""What models call their stacks; other numbers count the parts of a small sequence, which may leave some out"""
NUMBER = re.compile(r"\.(\d+)\.")
LONGEST = 5
"""Digits of a layer's number"""


class Stack(NamedTuple):
    """Layers of one kind, one after another."""

    prefix: str
    """`model.layers`"""
    layers: Mapping[int, frozenset[str]]
    """Number -> the names in it: `self_attn.q_proj.weight`"""

    def gaps(self) -> list[tuple[int, int]]:
        """First and last of the numbers that are left out, for each place"""
        return [(a + 1, b - 1) for a, b in pairwise((-1, *self.layers)) if b - a > 1]

    def poor(self) -> dict[int, frozenset[str]]:
        """Layers that lack what most layers of the stack have, and have nothing that those have not."""
        (usual, count), *_ = Counter(self.layers.values()).most_common(1)
        if 2 * count <= len(self.layers):
            return {}
        return {i: usual - names for i, names in self.layers.items() if names < usual}


def stacks(names: Iterable[str]) -> list[Stack]:
    """The stacks of layers, by the first number in each name that follows one of NAMES."""
    found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        parts = name.split(".")
        at = next(
            (i for i, part in enumerate(parts) if part.isdecimal() and len(part) <= LONGEST), None
        )
        if at and parts[at - 1] in NAMES:
            found[".".join(parts[:at])][int(parts[at])].add(".".join(parts[at + 1 :]))
    return [
        Stack(prefix, {i: frozenset(n) for i, n in sorted(layers.items())})
        for prefix, layers in found.items()
    ]


def inside(name: str) -> str:
    """A name from the number of its layer on; files of one model may differ in what stands before it"""
    parts = name.split(".")
    return ".".join(parts[next((i for i, part in enumerate(parts) if part.isdecimal()), 0) :])


def layer_of(name: str) -> int | None:
    """The number of the layer that a name stands in"""
    return next(
        (int(part) for part in name.split(".") if part.isdecimal() and len(part) <= LONGEST), None
    )


def are_whole(moved: set[str], names: set[str]) -> bool:
    """Are those that moved all tensors of some kinds, or of some layers, and more than one tensor?"""
    if len(moved) < 2 or not any(NUMBER.search(name) for name in moved):
        return False
    kinds = {NUMBER.sub(".*.", name) for name in moved}
    layers = {match[0] for name in moved if (match := NUMBER.search(name))}
    by_kind = all(name in moved for name in names if NUMBER.sub(".*.", name) in kinds)
    by_layer = all(
        name in moved for name in names if (match := NUMBER.search(name)) and match[0] in layers
    )
    return by_kind or by_layer


def are_targets(moved: set[str], names: set[str]) -> bool:
    """Are they all tensors of some kinds in some layers, more than one: the targets of an adapter?"""
    kinds = {NUMBER.sub(".*.", name) for name in moved}
    layers = {match[0] for name in moved if (match := NUMBER.search(name))}
    grid = {
        n
        for n in names
        if NUMBER.sub(".*.", n) in kinds and (match := NUMBER.search(n)) and match[0] in layers
    }
    return len(moved) > 1 and grid == moved
