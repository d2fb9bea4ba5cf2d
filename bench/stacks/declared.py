"""The stacks of stacks.yaml, and the cases of the bug bench that each of them can run."""

from __future__ import annotations

import os
import re
import sys
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from bench.bugs.case import Case, cases, inputs
from tests.parts.shelf import Missing


class Selection(BaseModel):
    """Cases of a stack, and the programs that it runs in their folders."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scripts: str = ""
    """The package that the case's training script imports"""
    unless: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    config: str = ""
    programs: tuple[str, ...] = ()

    def has(self, case: Case) -> bool:
        """Whether the stack can run this case.

        Args:
            case: One of the bug bench.

        Returns:
            True where the case's script or its file of settings is for this stack.
        """
        if self.scripts:
            script = case.folder / "broken" / "train.py"
            if not (case.warm and script.is_file()):
                return False
            text = script.read_text(encoding="utf-8")
            return _imports(text, self.scripts) and not any(
                _imports(text, name) for name in self.unless
            )
        return any(fnmatchcase(case.name, pattern) for pattern in self.cases) and (
            self.config in case.command
        )

    def programs_of(self, case: Case) -> tuple[str, ...]:
        """The command lines for a case.

        Args:
            case: One that the selection has.

        Returns:
            Each with the program first; `{inputs}` is left to be filled in.
        """
        if not self.scripts:
            return tuple(line.replace("{config}", self.config) for line in self.programs)
        twins = inputs(case, next(iter(case.families), None))
        words = twins.arguments(case, "broken")
        script = words[words.index("--") + 2 :]
        return (" ".join(script),)


class Stack(BaseModel):
    """A training stack as it is installed somewhere."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    package: str
    imports: tuple[str, ...]
    selections: tuple[Selection, ...]
    python_variable: str = ""
    tracker: bool = False
    sample: int = 0
    """How many of the cases are run; 0 for all"""

    @property
    def python(self) -> str:
        """The Python that has the stack.

        Raises:
            Missing: The variable of the stack's environment is not set.
        """
        if not self.python_variable:
            return sys.executable
        if self.python_variable not in os.environ:
            raise Missing(f"{self.python_variable} does not name the Python of {self.package}")
        return os.environ[self.python_variable]

    def selected(self) -> list[tuple[Case, Selection]]:
        """The cases that the stack runs.

        Returns:
            Each case with its selection, by name; only `sample` of them, at equal distances, if that is set.
        """
        fitting = self.fitting()
        if not self.sample or len(fitting) <= self.sample:
            return fitting
        return [fitting[index * len(fitting) // self.sample] for index in range(self.sample)]

    def fitting(self) -> list[tuple[Case, Selection]]:
        """All cases of the bench that can be said in the stack, with their selections, by name."""
        return [
            (case, selection)
            for case in cases()
            if (selection := self._selection_of(case)) is not None
        ]

    def _selection_of(self, case: Case) -> Selection | None:
        return next((selection for selection in self.selections if selection.has(case)), None)


@cache
def stacks() -> dict[str, Stack]:
    """What stacks.yaml declares, by name.

    Raises:
        pydantic.ValidationError: The file has an entry of another form.
    """
    text = Path(__file__).with_name("stacks.yaml").read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return {name: Stack(name=name, **entry) for name, entry in entries.items()}


def _imports(text: str, package: str) -> bool:
    return re.search(rf"^\s*(?:from|import) {package}\b", text, re.MULTILINE) is not None
