"""The rules there are: every module of a station's folder that holds a `Rule`."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from functools import cache
from typing import Any

from truetune.checks.rule import Rule
from truetune.errors import UsageError

DATA = ("tokenizer", "template", "rows", "tokens", "pairs")
"""The stations that look at rows with a tokenizer"""
AUDIT = ("batch", "law", "recitation")
"""The stations that look at a run with its trainer at hand"""
AFTER = ("answers", "cause", "evaluation", "serving")
"""The stations that look at what a model says"""
STATIONS = (
    *DATA,
    "tokenized",
    "config",
    "devices",
    "source",
    "commands",
    "modelfile",
    "log",
    "checkpoint",
    *AUDIT,
    *AFTER,
    "environment",
)


@cache
def rules(*stations: str) -> tuple[type[Rule[Any]], ...]:
    """The rules of these stations (of all when none is named), by code."""
    found: list[type[Rule[Any]]] = []
    for station in stations or STATIONS:
        package = importlib.import_module(f"truetune.checks.{station}")
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            found += [
                member
                for member in vars(module).values()
                if inspect.isclass(member)
                and issubclass(member, Rule)
                and member.__module__ == module.__name__
            ]
    return tuple(sorted(found, key=lambda rule: rule.code))


def station(rule: type[Rule[Any]]) -> str:
    """The station that a rule stands at."""
    return rule.__module__.split(".")[-2]


def page(rule: type[Rule[Any]]) -> str:
    """The rule's page, in Markdown: the docstring of its module."""
    return inspect.getdoc(inspect.getmodule(rule)) or ""


def choose(select: Iterable[str], ignore: Iterable[str], *stations: str) -> list[type[Rule[Any]]]:
    """The rules of these stations that `select` names (all when empty) and `ignore` does not, by name or code prefix.

    Raises UsageError for a name that fits no rule.
    """
    select, ignore = tuple(select), tuple(ignore)
    for wanted in (*select, *ignore):
        if not any(_fits(rule, wanted) for rule in rules()):
            raise UsageError(
                f"no rule is called {wanted!r}{_near(wanted)}; `truetune rules` lists them"
            )
    return [
        rule
        for rule in rules(*stations)
        if (not select or any(_fits(rule, s) for s in select))
        and not any(_fits(rule, i) for i in ignore)
    ]


def find(name: str) -> type[Rule[Any]]:
    """The rule of that name or code. Raises UsageError."""
    for rule in rules():
        if name.lower() == rule.name() or name.upper() == rule.code:
            return rule
    if any(_fits(rule, name) for rule in rules()):
        raise UsageError(
            f"{name} is the beginning of several codes; `truetune rules {name}` lists them"
        )
    raise UsageError(f"no rule is called {name!r}{_near(name)}; `truetune rules` lists them")


def _fits(rule: type[Rule[Any]], wanted: str) -> bool:
    return rule.name() == wanted or rule.code.startswith(wanted.upper())


def _near(wanted: str) -> str:
    names = [name for rule in rules() for name in (rule.name(), rule.code)]
    close = difflib.get_close_matches(wanted, names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
