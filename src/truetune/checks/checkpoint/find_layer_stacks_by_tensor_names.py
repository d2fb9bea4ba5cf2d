"""Reads the stacks of layers off the names of tensors: what each layer holds, and which sets of
tensors a choice may explain.

Names are all that a file tells of a model's structure: `model.layers.11.self_attn.q_proj.weight` is layer 11 of the
stack `model.layers`. Numbers behind other words count the parts of a small sequence, and are no layers. The trade-off:
a model that names its stack otherwise has none here, and the rules on layers say nothing of it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

STACK_NAMES = ("layers", "layer", "blocks", "block", "h")
"""What models call their stacks; other numbers count the parts of a small sequence, which may leave some out"""
NUMBER_IN_NAME = re.compile(r"\.(\d+)\.")
# Digits of a layer's number: longer ones are ids, and int() of a long text in a hostile file would take forever.
MAX_DIGITS = 5


class Stack(NamedTuple):
    """Layers of one kind, one after another."""

    prefix: str
    """`model.layers`"""
    layers: Mapping[int, frozenset[str]]
    """Number -> the names in it: `self_attn.q_proj.weight`"""

    def missing_number_ranges(self) -> list[tuple[int, int]]:
        """(first, last) of each range of layer numbers that is left out."""
        return [(a + 1, b - 1) for a, b in pairwise((-1, *self.layers)) if b - a > 1]

    def incomplete_layers(self) -> dict[int, frozenset[str]]:
        """Layers that lack what most layers of the stack have, and have nothing that those have not.

        Layer -> what it lacks. Hybrid stacks mix two kinds of layers: without a usual kind, none is incomplete.
        """
        (usual, count), *_ = Counter(self.layers.values()).most_common(1)
        if 2 * count <= len(self.layers):
            return {}
        return {i: usual - names for i, names in self.layers.items() if names < usual}


def find_stacks(names: Iterable[str]) -> list[Stack]:
    """The stacks of layers, by the first number in each name that follows one of STACK_NAMES."""
    names_by_stack: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        parts = name.split(".")
        at = _index_of_layer_number(parts)
        if at and parts[at - 1] in STACK_NAMES:
            names_by_stack[".".join(parts[:at])][int(parts[at])].add(".".join(parts[at + 1 :]))
    return [
        Stack(prefix, {i: frozenset(layers[i]) for i in sorted(layers)})
        for prefix, layers in names_by_stack.items()
    ]


def _index_of_layer_number(parts: Sequence[str]) -> int | None:
    """Where the number of a layer stands among the parts of a name; None where there is none."""
    places = (i for i, part in enumerate(parts) if part.isdecimal() and len(part) <= MAX_DIGITS)
    return next(places, None)


def name_part_from_layer_number_on(name: str) -> str:
    """The part of a tensor's name from its layer number on; files of one model may differ in what
    stands before it.
    """
    parts = name.split(".")
    return ".".join(parts[next((i for i, part in enumerate(parts) if part.isdecimal()), 0) :])


def layer_number(name: str) -> int | None:
    """The number of the layer that a name stands in; None where it stands in none."""
    parts = name.split(".")
    at = _index_of_layer_number(parts)
    return None if at is None else int(parts[at])


def _first_number_part(name: str) -> str | None:
    """The first number between dots (`.11.`), which stands for a layer here; None where there is none."""
    match = NUMBER_IN_NAME.search(name)
    return match[0] if match is not None else None


def _name_without_numbers(name: str) -> str:
    """A name without its numbers, the same for all layers."""
    return NUMBER_IN_NAME.sub(".*.", name)


def are_moved_whole_kinds_or_layers(moved: set[str], names: set[str]) -> bool:
    """Are those that moved all tensors of some kinds, or of some layers, and more than one tensor?

    Then somebody chose them: a partial fine-tune freezes kinds or layers, an accident does not.
    """
    layers = {_first_number_part(name) for name in moved} - {None}
    if len(moved) < 2 or not layers:
        return False
    kinds = {_name_without_numbers(name) for name in moved}
    are_kinds = all(name in moved for name in names if _name_without_numbers(name) in kinds)
    are_layers = all(name in moved for name in names if _first_number_part(name) in layers)
    return are_kinds or are_layers


def are_adapter_targets(moved: set[str], names: set[str]) -> bool:
    """Are the moved tensors all of some kinds in some layers, and more than one: the targets of an
    adapter?
    """
    kinds = {_name_without_numbers(name) for name in moved}
    layers = {_first_number_part(name) for name in moved} - {None}
    grid = {
        name
        for name in names
        if _name_without_numbers(name) in kinds and _first_number_part(name) in layers
    }
    return len(moved) > 1 and grid == moved
