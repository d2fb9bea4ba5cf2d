"""Finds all remedies: every module of `truetune.fixing.remedies` that holds a `Remedy`.

A remedy registers itself by being there: a new one is a new module, and no list has to name it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache

from truetune.fixing import remedies as package
from truetune.fixing.base_of_row_remedies import Remedy


@cache
def all_remedies() -> tuple[type[Remedy], ...]:
    """All remedies, in the order in which they are tried."""
    remedies_of_modules: list[type[Remedy]] = []
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        remedies_of_modules += [
            member
            for member in vars(module).values()
            if inspect.isclass(member)
            and issubclass(member, Remedy)
            # A class that was imported for its parts belongs to the module that defines it.
            and member.__module__ == module.__name__
            and not member.__name__.startswith("_")
        ]
    return tuple(
        # Safe ones before others at each stage: what a safe edit ends, no other one has to. Then by
        # module, so that the order is the same everywhere.
        sorted(
            remedies_of_modules,
            key=lambda remedy: (remedy.stage, not remedy.safe, remedy.__module__),
        )
    )
