"""A case: a fault that a fine-tune can have, an input that has it, and the same input without it."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import shlex
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args

import yaml

from bench.bugs import serving
from bench.bugs.inputs.tokenizers import folder as tokenizer_folder
from bench.bugs.warm import TOOLS
from tests.parts.shelf import Missing, lay
from truetune.checks.rule_catalogue import STATIONS
from truetune.settings.run_spec import Severity

CASES = Path(__file__).parent / "cases"
STAGES = (*STATIONS, "memory")


@dataclass(frozen=True, slots=True)
class Case:
    """What stands in `cases/<name>/case.yaml`."""

    name: str
    entry: str
    """Its name in the corpus of known failures."""
    fault: str
    """One sentence."""
    threads: tuple[str, ...]
    """Public threads, `owner/repo#number`."""
    stage: str
    """Where on the path it should be found."""
    rules: tuple[str, ...] = ()
    """Each of them is the right one."""
    severity: Severity = "warning"
    """The lowest severity that counts as found."""
    besides: tuple[str, ...] = ()
    """Rules that are right about both twins"""
    families: tuple[str, ...] = ()
    """The tokenizers that it is tried with, where the tokenizer matters."""
    command: str = ""
    """Arguments of truetune, with `{folder}`, `{tokenizer}`, `{python}`, the names of TOOLS, and URLs: `{endpoint}` of
    `transformers serve`, `{engine}` of an engine that serves the adapter in `{folder}/served`."""

    @property
    def folder(self) -> Path:
        return CASES / self.name

    @property
    def runs(self) -> bool:
        """Its input is a training script, which is run."""
        return self.command.startswith(("run ", "rehearse "))

    @property
    def warm(self) -> bool:
        """It can be run in a fork of a warm process: one process, of this Python."""
        return self.runs and " -- {python} train.py" in self.command

    @property
    def static(self) -> bool:
        """Its inputs are files of the repository."""
        return (self.folder / "broken").is_dir()


class Twins(NamedTuple):
    """The inputs of a case for one tokenizer."""

    broken: Path
    clean: Path
    tokenizer: Path | None

    def arguments(self, case: Case, side: str) -> list[str]:
        """truetune's arguments for the `broken` or the `clean` twin. Raises Missing where its tool or server
        is not here."""
        values = {
            "folder": getattr(self, side),
            "tokenizer": self.tokenizer,
            "python": sys.executable,
        }
        values |= {name: tool(name) for name in TOOLS if f"{{{name}}}" in case.command}
        if "{endpoint}" in case.command:
            values["endpoint"] = serving.endpoint()
        if "{engine}" in case.command:
            values["engine"] = serving.engine(getattr(self, side))
        return [word.format(**values) for word in shlex.split(case.command)]


def tool(name: str) -> str:
    """Path of a tool. Raises Missing."""
    variable, program = TOOLS[name]
    if variable not in os.environ:
        raise Missing(f"{program}: {variable} does not name its Python")
    return str(Path(os.environ[variable]).parent / program)


@cache
def cases() -> tuple[Case, ...]:
    """All of them, by name. Raises ValueError for a case.yaml that is not as it should be."""
    return tuple(load(path) for path in sorted(CASES.glob("*/case.yaml")))


def load(path: Path) -> Case:
    """The case that a case.yaml describes. Raises ValueError."""
    told: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    told |= {
        name: tuple(told[name])
        for name in ("threads", "rules", "families", "besides")
        if name in told
    }
    try:
        case = Case(path.parent.name, **told)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None
    if case.stage not in STAGES:
        raise ValueError(f"{path}: stage {case.stage!r} is none of {', '.join(STAGES)}")
    if case.severity not in get_args(Severity):
        raise ValueError(
            f"{path}: severity {case.severity!r} is none of {', '.join(get_args(Severity))}"
        )
    if not (case.rules and case.command):
        raise ValueError(f"{path}: a case names its rules and its command")
    return case


def inputs(case: Case, family: str | None) -> Twins:
    """The twins, as they stand in the repository or as its make.py builds them (once).

    Raises Missing where something can't be had on this machine.
    """
    tokenizer = tokenizer_folder(family) if family else None
    if case.static:
        return Twins(case.folder / "broken", case.folder / "clean", tokenizer)
    module = _module(case)
    place = f"bugs/{case.name}-{_digest(module)}/{family or 'any'}"

    def fill(folder: Path) -> None:
        for side in ("broken", "clean"):
            (folder / side).mkdir()
            module.make(folder / side, side == "broken", tokenizer)

    made = lay(place, fill)
    return Twins(made / "broken", made / "clean", tokenizer)


def _module(case: Case) -> ModuleType:
    name = f"bench_bugs_{case.name.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, case.folder / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _digest(module: ModuleType) -> str:
    """Changes with the text of make.py and of the modules of this bench whose names it uses."""
    owners = {getattr(member, "__module__", None) for member in vars(module).values()}
    helpers = sorted(
        owner for owner in owners if isinstance(owner, str) and owner.startswith("bench.bugs.")
    )
    texts = [Path(str(module.__file__)).read_text(encoding="utf-8")]
    texts += [inspect.getsource(sys.modules[helper]) for helper in helpers]
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:10]
