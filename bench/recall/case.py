"""One fault, and the cases that hold it or look like it: what stands in faults.yaml and in cases/<fault>/<case>/."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
CASES = HERE / "cases"
DEFAULT_COMMANDS = ("check .",)


@dataclass(frozen=True, slots=True)
class Fault:
    """What people do wrong, in plain words, and the rules that say so."""

    id: str
    title: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One way to write a fault, or a healthy file that looks like it."""

    fault: Fault
    name: str
    is_faulty: bool
    was_held_back: bool
    """Nobody who changed the rules had seen it at the first measurement"""
    where: str
    """File and line, as its author says"""
    why: str
    commands: tuple[str, ...] = DEFAULT_COMMANDS
    """Arguments of truetune, run in a copy of the folder"""
    says: tuple[str, ...] = ()
    """Rules or words of which the output must hold one; those of the fault where it is empty"""

    @property
    def key(self) -> str:
        """Its name in results."""
        return f"{self.fault.id}/{self.name}"

    @property
    def folder(self) -> Path:
        """Where its files stand."""
        return CASES / self.fault.id / self.name


@cache
def faults() -> tuple[Fault, ...]:
    """All faults, in the order of faults.yaml."""
    stated: list[dict[str, Any]] = yaml.safe_load((HERE / "faults.yaml").read_text("utf-8"))
    return tuple(Fault(one["id"], one["title"], tuple(one["rules"])) for one in stated)


@cache
def cases() -> tuple[Case, ...]:
    """All cases, by fault and name. Raises ValueError for a case.yaml that is not as it should be."""
    return tuple(
        _load(fault, path)
        for fault in faults()
        for path in sorted((CASES / fault.id).glob("*/case.yaml"))
    )


def _load(fault: Fault, path: Path) -> Case:
    """The case that a case.yaml describes. Raises ValueError."""
    stated: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    if stated.get("kind") not in ("faulty", "healthy"):
        raise ValueError(f"{path}: kind is {stated.get('kind')!r}; expected faulty or healthy")
    return Case(
        fault,
        path.parent.name,
        stated["kind"] == "faulty",
        bool(stated["held_back"]),
        str(stated["where"]),
        str(stated["why"]),
        tuple(stated.get("commands", DEFAULT_COMMANDS)),
        tuple(stated.get("says", ())),
    )
