"""What a project does, by the lines of its files: the traits that causes take, and where each is seen.

A cause that takes DPO is impossible in a project that trains by plain supervised rows, and one that takes a cut of long
texts is likely where a line sets one. The lines are read one by one and never run or parsed, so that any file counts,
whatever wrote it. The trade-off: a line that nothing calls counts too, so that a trait can make a cause likely and
never proves one; and the lack of a trait counts only where the files show the thing that would have it (`Area`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from truetune.checks.explaining.project_traits import (
    GENERATES,
    TRAINS,
    TRAIT_READINGS,
    Area,
    Trait,
    list_mentioned,
    traits_shown,
)
from truetune.troubleshooting.project_words import ProjectText, TextLine

# Chosen: a line beyond is data or a minified file.
MAX_LINE_CHARACTERS = 400
MAX_LINES_OF_TRAIT = 4
COMMENT = re.compile(r"(^|\s)#(?!\s*(SBATCH|PBS|SUB)\b).*$")
IMPORT = re.compile(r"\s*(from\s+\S+\s+import|import)\s")
ASSIGNED = re.compile(r"[\w\])]\s*[=:(]")


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """The traits of a project with the lines that show them."""

    lines: Mapping[Trait, tuple[TextLine, ...]]
    """The most telling lines first"""
    asked: frozenset[Trait]
    """Traits that the user's words name: they are there, whatever the files say"""
    areas: frozenset[Area]
    """What the files show at all"""

    @property
    def present(self) -> frozenset[Trait]:
        """The traits that files or words show."""
        return frozenset(self.lines) | self.asked

    @property
    def unknown(self) -> frozenset[Trait]:
        """The traits of which the files could not tell: there is no training among them, or no generation."""
        return frozenset(
            reading.trait for reading in TRAIT_READINGS if not self._can_tell(reading.area)
        )

    def _can_tell(self, area: Area) -> bool:
        if area == "any":
            return {"training", "generation"} <= self.areas
        return area in self.areas


def read_facts(question: str, texts: Iterable[ProjectText]) -> ProjectFacts:
    """The facts of a project from its texts and the user's words."""
    found: dict[Trait, list[TextLine]] = {}
    areas: set[Area] = set()
    for text in texts:
        for line in text.lines():
            code = COMMENT.sub("", line.text[:MAX_LINE_CHARACTERS])
            if not code.strip():
                continue
            if TRAINS.search(code):
                areas.add("training")
            if GENERATES.search(code):
                areas.add("generation")
            for trait in traits_shown(code):
                found.setdefault(trait, []).append(TextLine(line.place, code.strip(), line.file))
    telling = {
        trait: tuple(sorted(lines, key=_rank_line)[:MAX_LINES_OF_TRAIT])
        for trait, lines in found.items()
    }
    return ProjectFacts(telling, list_mentioned(question), frozenset(areas))


def _rank_line(line: TextLine) -> tuple[bool, bool]:
    """Lines that set or call something before those that only name it; sorting keeps the order of the files."""
    return IMPORT.match(line.text) is not None, ASSIGNED.search(line.text) is None
