"""Finds random orders and splits of rows without a seed of their own, and says whether the
generator they draw from is seeded.

Python, numpy and PyTorch have a generator each: `torch.manual_seed` leaves `random.shuffle` as it
is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from truetune.checks.source.evidence.rows_divided_by_process import (
    depends_on_process_number_or_count,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

Generator = Literal["random", "numpy", "torch"]


class RandomDraw(NamedTuple):
    """A call that draws an order or a split."""

    call: Call
    generator: Generator
    is_in_place: bool
    is_split: bool
    seed: str
    """What makes it alike on all processes"""


class _DrawingFunction(NamedTuple):
    """A function that draws."""

    patterns: tuple[str, ...]
    generator: Generator
    own: tuple[str, ...]
    """Arguments by which a call brings a generator or a seed of its own"""
    is_in_place: bool = False
    is_split: bool = False


FUNCTIONS = (
    _DrawingFunction(("random.shuffle",), "random", (), is_in_place=True),
    _DrawingFunction(("random.sample",), "random", ()),
    _DrawingFunction(("numpy.random.shuffle",), "numpy", (), is_in_place=True),
    _DrawingFunction(("numpy.random.permutation",), "numpy", ()),
    _DrawingFunction(("torch.randperm",), "torch", ("generator",)),
    _DrawingFunction(
        ("torch.utils.data.random_split", "torch.utils.data.dataset.random_split"),
        "torch",
        ("generator",),
        is_split=True,
    ),
    _DrawingFunction(
        ("sklearn.model_selection.*train_test_split",),
        "numpy",
        ("random_state", "shuffle"),
        is_split=True,
    ),
)
METHODS = (
    ("train_test_split", ("seed", "generator", "shuffle", "random_state")),
    ("shuffle", ("seed", "generator", "buffer_size", "random_state")),
)
"""Of data sets; a stream has a `buffer_size`, and is divided otherwise"""
SEEDS: dict[Generator, tuple[str, ...]] = {
    "random": ("random.seed",),
    "numpy": ("numpy.random.seed", "numpy.random.set_state"),
    "torch": ("torch.manual_seed", "torch.random.manual_seed", "torch.set_rng_state"),
}
ADVICE: dict[Generator, str] = {
    "random": "random.seed(0)",
    "numpy": "numpy.random.seed(0)",
    "torch": "torch.manual_seed(0)",
}


def random_draws_without_own_seed(module: Module) -> Iterator[RandomDraw]:
    """The draws of a file that bring no generator or seed of their own."""
    for drawer in FUNCTIONS:
        for call in module.calls(*drawer.patterns):
            if _may_name_seed_or_generator(call, drawer.own) or (
                drawer.is_split and _generator_given_by_position(drawer, call)
            ):
                continue
            seed = ADVICE[drawer.generator]
            yield RandomDraw(call, drawer.generator, drawer.is_in_place, drawer.is_split, seed)
    for name, own in METHODS:
        for call in module.methods(name):
            is_rows = call.receiver is not None and "dataset" in module.flow.types(call.receiver)
            if is_rows and not _may_name_seed_or_generator(call, own):
                yield RandomDraw(
                    call, "numpy", is_in_place=False, is_split=name != "shuffle", seed="seed=0"
                )


def _may_name_seed_or_generator(call: Call, names: tuple[str, ...]) -> bool:
    """Does a call name a seed or a generator, or may it?"""
    return call.open or any(name in call.keywords for name in names)


def _generator_given_by_position(drawer: _DrawingFunction, call: Call) -> bool:
    """Is `random_split` given its generator by place?"""
    return drawer.generator == "torch" and len(call.args) > 2


def is_seeded_alike_on_all_processes(parts: Sequence[Module], generator: Generator) -> bool:
    """Does something in these files seed a generator with a number that is the same on all
    processes?
    """
    return any(
        _call_may_seed_generator(part, call, generator)
        and not any(depends_on_process_number_or_count(part, one) for one in call.args)
        for part in parts
        for call in part.all_calls
    )


def _call_may_seed_generator(module: Module, call: Call, generator: Generator) -> bool:
    """Does a call seed a generator: its own function, or one that is not seen and speaks of seeds?"""
    every = [name for names in SEEDS.values() for name in names]
    if call.named(*SEEDS[generator]):
        return True
    if call.named(*every):
        return False
    name = call.node.func
    text = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
    # A function of the project is read like the rest of it; one of a library seeds all generators.
    return (
        "seed" in text.lower()
        and module.flow.function_that_expression_names(call.node.func) is None
    )
