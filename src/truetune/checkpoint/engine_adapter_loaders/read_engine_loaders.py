"""Reads the table of what each engine's release does with an adapter, and where its code says so.

The table is data: one JSON file per engine beside this module. `python -m tests.serving.write_engine_loaders` writes
it, from what the real loaders did with some 3,000 small adapters and from facts that were read in the engines' code,
each with file and line. The trade-off: a release or an architecture that is not in the table is not judged, however
near another one is, because engines change their loaders between releases without a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal

from truetune.errors import UsageError
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json

Effect = Literal["served", "ignored", "refused"]
"""What a loader does with a part of an adapter: takes it as it was trained, leaves it out in silence, or fails"""
ENGINES = ("vllm", "sglang", "llama.cpp", "ollama", "tgi")
RenameKind = Literal["regex", "substring", "prefix", "suffix"]
_RENAMES: tuple[RenameKind, ...] = ("regex", "substring", "prefix", "suffix")


@dataclass(frozen=True, slots=True)
class LoaderFact:
    """What a loader does with one property of adapters."""

    effect: Effect
    source: str
    """File and line in the engine's repository at this release"""


@dataclass(frozen=True, slots=True)
class Rename:
    """One step by which a loader renames tensors before it looks them up."""

    kind: RenameKind
    old: str
    new: str

    def apply(self, name: str) -> str:
        """The name after this step."""
        if self.kind == "regex":
            return re.sub(self.old, self.new, name)
        if self.kind == "substring":
            return name.replace(self.old, self.new, 1)
        if self.kind == "prefix":
            return self.new + name.removeprefix(self.old) if name.startswith(self.old) else name
        return name.removesuffix(self.old) + self.new if name.endswith(self.old) else name


@dataclass(frozen=True)
class LoaderArchitecture:
    """What a loader does with adapters on one class of models."""

    name: str
    takes_adapters: bool
    modules: Mapping[str, Effect]
    """Pattern of a module's name (`*` is a number, `**` any text) -> what becomes of its tensors"""
    names: frozenset[str]
    """Last parts of names that the loader knows; empty: it does not look at them"""
    renames: tuple[Rename, ...]
    unknown: frozenset[str]
    """Last parts of names that it may serve: what becomes of them is not known"""
    source: str
    """Class or file of the engine that has the architecture"""

    def effect_on_module(self, module: str) -> Effect | None:
        """What becomes of a module's tensors; None where no pattern has it."""
        return next(
            (effect for pattern, effect in self._patterns if pattern.fullmatch(module)), None
        )

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], Effect]]:
        return [(_compile_pattern(pattern), effect) for pattern, effect in self.modules.items()]


@dataclass(frozen=True)
class EngineLoader:
    """The adapter loader of one release of an engine."""

    engine: str
    release: str
    repository: str
    facts: Mapping[str, LoaderFact]
    """By property: `dora`, `rslora`, `unknown_name`, ..."""
    max_rank: int | None
    """The highest rank without a flag; None: no limit"""
    rank_flag: str
    ranks: tuple[int, ...]
    """The values that the flag takes; empty: any"""
    other_parts_flag: str
    """The flag that makes it serve the vision or audio part; empty: none"""
    partners: Mapping[str, str]
    """Module that a loader stacks -> the one without which it fails (`missing_partner`)"""
    architectures: Mapping[str, LoaderArchitecture]

    def effect(self, name: str) -> Effect | None:
        """What it does with a property; None where that is not known."""
        fact = self.facts.get(name)
        return fact.effect if fact is not None else None

    def source(self, name: str) -> str:
        """Where the engine's code says what it does with a property."""
        return f"{self.repository} {self.release}, {self.facts[name].source}"


def known_releases(engine: str) -> tuple[str, ...]:
    """The releases of an engine that the table has, the newest first."""
    return tuple(_read_table(engine)["releases"])


def read_engine_loader(engine: str, release: str) -> EngineLoader | None:
    """The loader of one release of an engine; None where the table does not have it.

    Raises:
        UsageError: there is no such engine.
    """
    if engine not in ENGINES:
        raise UsageError(f"{engine}: expected one of {', '.join(ENGINES)}")
    table = _read_table(engine)
    written = release.removeprefix("v")
    raw = table["releases"].get(written)
    if raw is None:
        return None
    architectures = {
        name: _make_architecture(name, entry)
        for name, entry in table["architectures"].items()
        if written in entry["releases"]
    }
    return EngineLoader(
        engine=engine,
        release=written,
        repository=table["repository"],
        facts={name: LoaderFact(*fact) for name, fact in raw["facts"].items()},
        max_rank=table["max_rank"],
        rank_flag=table["rank_flag"],
        ranks=tuple(raw.get("ranks", ())),
        other_parts_flag=raw.get("other_parts_flag", ""),
        partners=table.get("partners", {}),
        architectures=architectures,
    )


@cache
def _read_table(engine: str) -> Mapping[str, Any]:
    """The table of an engine, as it lies beside this module."""
    name = engine.replace(".", "_")
    raw: Mapping[str, Any] = parse_json(
        files(__package__).joinpath(f"{name}.json").read_bytes(), RESULT
    )
    return raw


def _make_architecture(name: str, entry: Mapping[str, Any]) -> LoaderArchitecture:
    """The record of one architecture of the table."""
    modules: dict[str, Effect] = {}
    for effect in ("served", "ignored", "refused"):
        modules.update(dict.fromkeys(entry.get(effect, ()), effect))
    return LoaderArchitecture(
        name=name,
        takes_adapters=entry.get("takes_adapters", True),
        modules=modules,
        names=frozenset(entry.get("names", ())),
        renames=tuple(
            Rename(kind, old, new) for kind in _RENAMES for old, new in entry.get(kind, ())
        ),
        unknown=frozenset(entry.get("unknown", ())),
        source=entry["source"],
    )


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """`layers.*.mlp` as an expression: `*` is a number, `**` any text."""
    text = re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", r"\d+")
    return re.compile(text)
