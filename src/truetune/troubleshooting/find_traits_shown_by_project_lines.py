"""Finds out what a project does, by the lines of its files: the traits that causes need, and the
lines that show each.

A cause that takes DPO is impossible in a project that trains by plain supervised rows, and one that takes a cut of long
texts is likely where a line sets one. The lines are read one by one and never run or parsed, so that any file counts,
whatever wrote it. The trade-off: a line that nothing calls counts too, so that a trait can make a cause likely and
never proves one; and the lack of a trait counts only where the files show the thing that would have it (`Area`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from truetune.checks.explaining.recognise_project_traits_behind_causes import (
    GENERATES,
    TRAINS,
    TRAIT_READINGS,
    Area,
    Trait,
    traits_mentioned,
    traits_shown_by_line,
    traits_switched_off_by_line,
)
from truetune.troubleshooting.project_words import ProjectText, TextLine
from truetune.troubleshooting.signs.find_signs_in_statements import find_signs
from truetune.troubleshooting.signs.sign_as_statement_patterns import Sign
from truetune.troubleshooting.split_files_into_statements import COMMENT, MAX_LINE_CHARACTERS

# Chosen, not measured: a cause shows the lines with its own setting, which may stand behind the first of their kind.
MAX_LINES_OF_TRAIT = 16
IMPORT = re.compile(r"\s*(from\s+\S+\s+import|import)\s")
ASSIGNED = re.compile(r"[\w\])]\s*[=:(]")
MAX_FRAME_LINES = 400
"""Lines of one traceback that are kept, which bounds a text in which no error ends it"""
OUT_OF_MEMORY = re.compile(
    r"^\S{0,80}(?:OutOfMemoryError|RuntimeError: CUDA (?:error: )?out of memory)"
)
FRAME_PATH = re.compile(r'File "[^"]*", line \d+')
PHASES: Mapping[Trait, re.Pattern[str]] = {
    Trait.MERGE: re.compile(r"merge|unload|export|convert_"),
    Trait.EVALUATION: re.compile(r"eval|valid|predict|test|metric", re.IGNORECASE),
}
"""Phases of a run, and what stands in the traceback of one"""
EVALUATED = re.compile(r"\b(?:eval|val|valid(?:ation)?)_?(?:loss|acc)|\bevaluat", re.IGNORECASE)
"""In a log: the run has evaluated"""


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """The traits that a project shows, with the lines that show them."""

    lines: Mapping[Trait, tuple[TextLine, ...]]
    """The most telling lines first"""
    asked: frozenset[Trait]
    """Traits that the user's words name: they are there, whatever the files say"""
    areas: frozenset[Area]
    """What the files show at all"""
    switched_off: frozenset[Trait] = frozenset()
    """What a line sets to nothing, and no line sets otherwise"""
    outside_failure: frozenset[Trait] = frozenset()
    """Phases of a run in which the memory did not run out, by the traceback that says where it did"""
    signs: Mapping[Sign, tuple[TextLine, ...]] = field(default_factory=dict)
    """What shows single causes, with its lines"""

    @property
    def traits_shown_by_project(self) -> frozenset[Trait]:
        """The traits that files or the user's words show."""
        return frozenset(self.lines) | self.asked

    @property
    def traits_files_could_not_show(self) -> frozenset[Trait]:
        """The traits that the files could not show, since there is no training or no generation
        among them.
        """
        return self.traits_files_could_not_show_in_area(None)

    def traits_files_could_not_show_in_area(self, asked: Area | None) -> frozenset[Trait]:
        """The traits that the files could not show, where the question is about one area.

        What may stand in either is known from the scripts of that area alone.
        """
        untold = frozenset(
            reading.trait
            for reading in TRAIT_READINGS
            if not self._files_could_show(reading.area, asked)
        )
        return untold - self.switched_off

    def _files_could_show(self, area: Area, asked: Area | None) -> bool:
        """Could the files show traits of an area, since a script of it is among them?"""
        if area == "any" and asked is not None:
            return asked in self.areas
        if area == "any":
            return {"training", "generation"} <= self.areas
        return area in self.areas


def read_facts_of_project(question: str, texts: Iterable[ProjectText]) -> ProjectFacts:
    """The facts of a project from its texts and the user's words."""
    lines_by_trait: dict[Trait, list[TextLine]] = {}
    areas: set[Area] = set()
    off: set[Trait] = set()
    texts = tuple(texts)
    for text in texts:
        for line in text.lines_unless_prose():
            code = COMMENT.sub("", line.text[:MAX_LINE_CHARACTERS])
            if not code.strip():
                continue
            if TRAINS.search(code):
                areas.add("training")
            if GENERATES.search(code):
                areas.add("generation")
            off |= set(traits_switched_off_by_line(code))
            for trait in traits_shown_by_line(code):
                lines_by_trait.setdefault(trait, []).append(
                    TextLine(line.place, code.strip(), line.file)
                )
    telling = {
        trait: tuple(sorted(lines, key=_sort_key_putting_uses_before_mentions)[:MAX_LINES_OF_TRAIT])
        for trait, lines in lines_by_trait.items()
    }
    traits = traits_mentioned(question)
    return ProjectFacts(
        telling,
        traits,
        frozenset(areas),
        frozenset(off) - lines_by_trait.keys() - traits,
        _phases_outside_memory_traceback(texts) - traits,
        find_signs(texts),
    )


def _phases_outside_memory_traceback(texts: Iterable[ProjectText]) -> frozenset[Trait]:
    """The phases of a run that no traceback of an out-of-memory error goes through; none where
    there is no such traceback.
    """
    failures = [(text.text, way) for text in texts for way in _tracebacks_out_of_memory(text.text)]
    if not failures:
        return frozenset()
    ways = " ".join(way for _, way in failures)
    outside = {trait for trait, pattern in PHASES.items() if not pattern.search(ways)}
    # A step behind an evaluation may fail by what the evaluation keeps.
    if any(EVALUATED.search(text) for text, _ in failures):
        outside.discard(Trait.EVALUATION)
    return frozenset(outside)


def _tracebacks_out_of_memory(text: str) -> Iterator[str]:
    """The functions and source lines of each traceback that ends in an out-of-memory error, as one
    text each.
    """
    way: list[str] | None = None
    for line in text.splitlines():
        if "Traceback (most recent call last)" in line:
            way = []
        elif OUT_OF_MEMORY.search(line):
            if way:
                yield " ".join(way)
            way = None
        elif way is not None and len(way) < MAX_FRAME_LINES:
            # The file's path names packages, and says nothing of what was done.
            way.append(FRAME_PATH.sub("", line[:MAX_LINE_CHARACTERS]))


def _sort_key_putting_uses_before_mentions(line: TextLine) -> tuple[bool, bool]:
    """A sort key that puts lines which set or call something before those that only name it, and
    keeps the order of the files.
    """
    return IMPORT.match(line.text) is not None, ASSIGNED.search(line.text) is None
