"""The broken projects: static cases of the bug bench, and starts of users who said a symptom.

They are drawn evenly by name, not chosen by hand, from all that need no training, no model and no tokenizer of
others. A case of the bug bench comes without words, as where somebody asks for a review; a start comes with the
user's own words.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.bugs.case import CASES, Case, cases
from bench.starts.start import Start, starts
from truetune.report.brief_json import BriefFinding

Drawn = TypeVar("Drawn")
PROJECTS_OF_A_KIND = 10
"""Of 20: as many from the bug bench as from the starts"""


@dataclass(frozen=True, slots=True)
class BrokenProject:
    """Files with a fault, and what is seen of it."""

    name: str
    source: Case | Start
    symptom: str
    """In the user's words; empty where nothing is said"""
    named_by: tuple[str, ...]
    """The fault is named where a finding has one of these: rules, or words of its message"""

    def lay_out(self, scratch: Path) -> Path:
        """Copy its files into an empty folder; gives the project's folder in it."""
        if isinstance(self.source, Start):
            self.source.lay_out(scratch)
            return scratch
        # Settings of some cases name models by the way from their place in the bench.
        (scratch / "inputs").symlink_to(CASES.parent / "inputs")
        folder = scratch / "cases" / self.name / "broken"
        shutil.copytree(self.source.folder / "broken", folder)
        return folder

    def is_named_by(self, finding: BriefFinding) -> bool:
        """Does a finding name the fault, and have a remedy?"""
        if not finding.remedy:
            return False
        # As the terminal writes it, which the words of starts are taken from.
        head = f"{finding.severity}[{finding.code}] {finding.rule}: {finding.message}"
        text = " ".join(f"{head} {finding.place} {finding.shown} {finding.remedy}".split())
        if isinstance(self.source, Case):
            return finding.rule in self.named_by
        return any(" ".join(word.split()).casefold() in text.casefold() for word in self.named_by)


def draw_projects() -> tuple[BrokenProject, ...]:
    """Twenty projects, always the same while no case is added."""
    static = [
        case
        for case in cases()
        if case.static and case.command.startswith("check ") and "{tokenizer}" not in case.command
    ]
    said = sorted(
        (start for start in starts() if _is_static_with_words(start)), key=lambda start: start.name
    )
    return (
        *(BrokenProject(case.name, case, "", case.rules) for case in _draw_evenly(static)),
        *(
            BrokenProject(start.name, start, _words_of_user(start), start.leads_to)
            for start in _draw_evenly(said)
        ),
    )


def _is_static_with_words(start: Start) -> bool:
    """Does a start say a symptom, and need nothing but its own files?"""
    return (
        start.commands[0].startswith("truetune troubleshoot ")
        and "{" not in start.commands[0]
        and not (start.folder / "make.py").exists()
    )


def _words_of_user(start: Start) -> str:
    """The symptom of a start, as it is typed behind `troubleshoot`."""
    return shlex.split(start.commands[0])[2]


def _draw_evenly(found: Sequence[Drawn]) -> Sequence[Drawn]:
    """As many as are wanted, at even distances."""
    return found[:: len(found) // PROJECTS_OF_A_KIND][:PROJECTS_OF_A_KIND]
