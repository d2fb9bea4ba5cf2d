"""One start: the symptom, the files that a user has, the commands that they try, and what the true cause is."""

from __future__ import annotations

import importlib.util
import lzma
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from tests.parts.lay_out import model_folder, tokenizer_folder

CASES = Path(__file__).parent / "cases"
Symptom = Literal[
    "garbage-output",
    "loss-does-not-fall",
    "nothing-is-learned",
    "out-of-memory",
    "several-gpus",
    "odd-metrics",
    "slow-generation",
    "dpo-without-effect",
]
Author = Literal[
    "project",
    "fresh reader",
    "fresh reader, second set",
    "fresh reader, third set",
    "fresh reader, fourth set",
    "fresh reader, fifth set",
    "fresh reader, sixth set",
    "fresh reader, seventh set",
    "fresh reader, eighth set",
    "fresh reader, ninth set",
    "fresh reader, tenth set",
    "fresh reader, eleventh set",
    "fresh reader, twelfth set",
    "fresh reader, thirteenth set",
    "fresh reader, fourteenth set",
    "fresh reader, fifteenth set",
    "fresh reader, sixteenth set",
    "fresh reader, seventeenth set",
    "fresh reader, eighteenth set",
    "fresh reader, nineteenth set",
    "fresh reader, twentieth set",
    "fresh reader, twenty-first set",
    "fresh reader, twenty-second set",
]
MOST_COMMANDS = 2
"""A user gives up after that many"""
PLACE = re.compile(r"\{(?P<name>[\w.-]+)\}")


@dataclass(frozen=True, slots=True)
class Start:
    """What stands in `cases/<name>/start.yaml`."""

    name: str
    symptom: Symptom
    has: str
    """What the user has: one sentence"""
    cause: str
    """What is wrong: one sentence"""
    commands: tuple[str, ...]
    """What they type, in turn, in a copy of the case's folder; `{python}`, `{model}` (SmolLM2 135M), or the name of a
    tokenizer of tests.parts such as `{qwen3}` are filled in"""
    leads_to: tuple[str, ...]
    """Rules, causes or words; the cause is named where the output of a command has one of them"""
    author: Author = "project"

    @property
    def folder(self) -> Path:
        """Where its files stand."""
        return CASES / self.name

    def lay_out(self, target: Path) -> None:
        """Copy its files to an empty folder, unpack what is kept as .xz, and add what its make.py builds.

        Raises:
            Missing: a tokenizer or model cannot be had on this machine.
        """
        kept = shutil.ignore_patterns("start.yaml", "make.py", "__pycache__")
        shutil.copytree(self.folder, target, dirs_exist_ok=True, ignore=kept)
        _unpack(target)
        script = self.folder / "make.py"
        if script.exists():
            _maker(script)(target)

    def words(self, command: str) -> list[str]:
        """The words of a command with the places of this machine filled in. Raises Missing."""
        return shlex.split(PLACE.sub(lambda found: _place(found["name"]), command))


@cache
def starts() -> tuple[Start, ...]:
    """All of them, by symptom and name. Raises ValueError for a start.yaml that is not as it should be."""
    loaded = [load(path) for path in sorted(CASES.glob("*/start.yaml"))]
    order = get_args(Symptom)
    return tuple(sorted(loaded, key=lambda start: (order.index(start.symptom), start.name)))


def load(path: Path) -> Start:
    """The start that a start.yaml describes. Raises ValueError."""
    stated: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    stated |= {name: tuple(stated.get(name, ())) for name in ("commands", "leads_to")}
    try:
        start = Start(path.parent.name, **stated)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None
    if start.symptom not in get_args(Symptom):
        raise ValueError(
            f"{path}: symptom {start.symptom!r} is none of {', '.join(get_args(Symptom))}"
        )
    if start.author not in get_args(Author):
        raise ValueError(
            f"{path}: author {start.author!r} is none of {', '.join(get_args(Author))}"
        )
    if not 1 <= len(start.commands) <= MOST_COMMANDS:
        raise ValueError(f"{path}: {len(start.commands)} commands; expected 1 to {MOST_COMMANDS}")
    if not start.leads_to:
        raise ValueError(
            f"{path}: leads_to is empty; name the rule or the words that state the cause"
        )
    return start


def _unpack(folder: Path) -> None:
    """Put each file in the place of its .xz: data of more than 150 kB are kept packed, and the whole would be 25 MB."""
    for packed in folder.rglob("*.xz"):
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
        packed.unlink()


def _place(name: str) -> str:
    """What a name in braces stands for. Raises Missing."""
    if name == "python":
        return sys.executable
    if name == "model":
        return str(model_folder())
    return str(tokenizer_folder(name))


def _maker(script: Path) -> Callable[[Path], None]:
    """`make(folder)` of a case's make.py."""
    spec = importlib.util.spec_from_file_location(
        f"bench_start_{script.parent.name.replace('-', '_')}", script
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    make: Callable[[Path], None] = module.make
    return make
