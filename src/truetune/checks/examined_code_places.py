"""Counts the places of a file (calls, methods, imports) that a rule on source examined, as the
rule's figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement
from truetune.source.parsed_source_file import Module


@dataclass(frozen=True, slots=True)
class CodePlaces:
    """The places of one kind: calls of a function, trainers that are made, names that are imported."""

    what: str
    """In the plural: `calls of generate`. It also names the kind: one kind is counted once in a file."""
    find: Callable[[Module], Iterable[object]]

    def count_in(self, module: Module) -> int:
        """The number of these places in a file; kept with the file, for several rules count the
        same.
        """
        if self.what not in module.examined_place_counts:
            module.examined_place_counts[self.what] = sum(1 for _ in self.find(module))
        return module.examined_place_counts[self.what]

    def measurement_without_faults(self, count: int) -> Measurement:
        """The measurement of so many examined places, all of which are as they should be."""
        return Measurement(f"{self.what}: {count:,}", count, count)

    @property
    def unmet_without_places(self) -> Unmet:
        """Why a rule says nothing where there is no such place."""
        return Unmet(f"it is about {self.what}, and there are none")


def places_of_calls(what: str, *patterns: str) -> CodePlaces:
    """Calls of what is named so: see `Module.calls`."""
    return CodePlaces(what, lambda module: module.calls(*patterns))


def places_of_method_calls(what: str, *names: str) -> CodePlaces:
    """Calls of methods of these names: see `Module.methods`."""
    return CodePlaces(what, lambda module: module.methods(*names))


def places_of_calls_with_keywords(what: str, keywords: Iterable[str], *patterns: str) -> CodePlaces:
    """Calls of what is named so, in which each of these arguments is given by name."""
    names = frozenset(keywords)
    return CodePlaces(
        what,
        lambda module: (call for call in module.calls(*patterns) if names <= call.keywords.keys()),
    )
