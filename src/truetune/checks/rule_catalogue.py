"""The catalogue of rules: finds the rules of this package and of plug-ins, and selects them by
name, code, station or fault.

A plug-in is an entry point of the group `truetune.rules` whose object is a module with rules, or a package of such
modules. Its rules say their family themselves (`Rule.family`), for they stand in no folder of ours.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

from truetune.checks.faults import Fault, fault_by_name
from truetune.checks.former_rule_codes import FORMER_CODES, FORMER_NAMES
from truetune.checks.rule import DataRule, Rule
from truetune.checks.rule_families import STABILITIES, code_sort_key, current_codes_of_former
from truetune.errors import UsageError
from truetune.plugins import load_plugins

OWN_PACKAGE = "truetune.checks"
DATA = ("tokenizer", "template", "rows", "tokens", "pairs")
"""The stations that look at rows with a tokenizer"""
AUDIT = ("batch", "law", "recitation", "rollout")
"""The stations that look at a run with its trainer"""
AFTER = ("answers", "cause", "evaluation", "serving", "reward")
"""The stations that look at what a model says, and at what is paid for it"""
STATIONS = (
    *DATA,
    "tokenized",
    "retrieval",
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


FORMER_METHODS = {
    "batch": "add_batch",
    "figure": "measurement_if_clean",
    "fault": "find_fault",
    "bad": "is_bad_answer",
    "broken": "findings_if_broken",
    "places": "examined_places",
}
"""Methods of rules that had another name. One that is called so would never be called: its rule would find nothing"""


@dataclass(frozen=True, slots=True)
class FaultWithRules:
    """A fault, and the rules that find it."""

    name: str
    """In kebab-case"""
    title: str
    rules: tuple[type[Rule[Any]], ...]
    """By code"""


# All rules are imported for it, which takes longer than judging a small file: it is done once a process.
@cache
def all_rules(*stations: str) -> tuple[type[Rule[Any]], ...]:
    """The rules of these stations (of all when none is named), by code."""
    chosen = list(_rules_of_this_package(*(stations or STATIONS)))
    chosen += [
        rule for rule in rules_of_plugins() if station_of_rule(rule) in (stations or STATIONS)
    ]
    return tuple(sorted(chosen, key=lambda rule: code_sort_key(rule.code)))


@cache
def rules_of_plugins() -> tuple[type[Rule[Any]], ...]:
    """The rules that other packages bring.

    Raises:
        UsageError: one can't be loaded, or has the code or the name of another rule or of a fault.
    """
    plugins = load_plugins("truetune.rules")
    if not plugins:
        return ()
    # A plug-in may not take the name of a rule of ours: `--ignore NAME` in somebody's settings would then mean
    # another.
    taken = {
        name: "truetune"
        for rule in _rules_of_this_package(*STATIONS)
        for name in (rule.code, rule.name())
    }
    brought: list[type[Rule[Any]]] = []
    for plugin, module in plugins.items():
        for rule in (
            rule for part in _module_and_submodules(module) for rule in _rules_defined_in(part)
        ):
            _refuse_former_methods(plugin, rule)
            _refuse_unfit_fault(plugin, rule)
            for name in (rule.code, rule.name()):
                if name in taken:
                    raise UsageError(
                        f"the plug-in {plugin}: {rule.__name__} is called {name}, as is a rule of"
                        f" {taken[name]}; give it another code and file name"
                    )
                taken[name] = plugin
            brought.append(rule)
    return tuple(brought)


def _refuse_former_methods(plugin: str, rule: type[Rule[Any]]) -> None:
    """Refuse a plug-in's rule with a method under its former name. Raises UsageError."""
    for former, now in FORMER_METHODS.items():
        if callable(vars(rule).get(former)):
            raise UsageError(
                f"the plug-in {plugin}: the method {rule.__name__}.{former} is called {now} now; rename it"
            )


def _refuse_unfit_fault(plugin: str, rule: type[Rule[Any]]) -> None:
    """Refuse a plug-in's rule with the name of a fault, or with something else than a fault. Raises UsageError."""
    if fault_by_name(rule.name()) is not None:
        raise UsageError(
            f"the plug-in {plugin}: {rule.__name__} is called {rule.name()}, as is a fault of truetune;"
            " give it another file name"
        )
    if not isinstance(rule.fault, Fault | None):
        raise UsageError(
            f"the plug-in {plugin}: {rule.__name__}.fault is {rule.fault!r}; give it a member of"
            " truetune.checks.faults.Fault, or leave it out"
        )


def _rules_of_this_package(*stations: str) -> Iterator[type[Rule[Any]]]:
    """The rules of this package in the folders of these stations."""
    for family in stations:
        for module in _module_and_submodules(importlib.import_module(f"{OWN_PACKAGE}.{family}")):
            yield from _rules_defined_in(module)


def _module_and_submodules(module: ModuleType) -> Iterator[ModuleType]:
    """A module itself, and those in it where it is a package."""
    yield module
    for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
        yield importlib.import_module(f"{module.__name__}.{info.name}")


def _rules_defined_in(module: ModuleType) -> Iterator[type[Rule[Any]]]:
    """The rules that a module defines itself."""
    for member in vars(module).values():
        is_rule = inspect.isclass(member) and issubclass(member, Rule)
        # What a module imports from another is defined there: it would stand in the list twice.
        if is_rule and member.__module__ == module.__name__ and hasattr(member, "code"):
            yield member


def station_of_rule(rule: type[Rule[Any]]) -> str:
    """The station that a rule stands at: its folder, or what a rule of a plug-in says."""
    if rule.__module__.startswith(f"{OWN_PACKAGE}."):
        return rule.__module__.split(".")[-2]
    return rule.family


def stations_of_rule_class(kind: type[Rule[Any]]) -> tuple[str, ...]:
    """The stations whose subject the rules of this class look at."""
    # Five stations share one subject: what a data rule reads of the tokenizer, it may need to judge rows as well.
    return DATA if issubclass(kind, DataRule) else (kind.family,)


def rule_page(rule: type[Rule[Any]]) -> str:
    """The rule's page, in Markdown: the docstring of its module."""
    return inspect.getdoc(inspect.getmodule(rule)) or ""


def select_rules(
    select: Iterable[str], ignore: Iterable[str], *stations: str
) -> list[type[Rule[Any]]]:
    """The rules of these stations that `select` names (all when empty) and `ignore` does not.

    A word of both is a rule's name, its code or the beginning of codes, the name of a fault, or a stability: `stable`,
    `preview`.

    Raises UsageError for a name that fits no rule.
    """
    selected = [_rules_named_by(wanted) for wanted in select]
    ignored = [_rules_named_by(wanted) for wanted in ignore]
    return [
        rule
        for rule in all_rules(*stations)
        if (not selected or any(rule in named for named in selected))
        and not any(rule in named for named in ignored)
    ]


def group_rules_by_fault(rules: Iterable[type[Rule[Any]]]) -> tuple[FaultWithRules, ...]:
    """Group rules by the fault that they find, in the order of `Fault`; faults of plug-ins' rules stand last."""
    found: dict[str, list[type[Rule[Any]]]] = {fault.kebab_name: [] for fault in Fault}
    for rule in rules:
        found.setdefault(rule.fault_name(), []).append(rule)
    return tuple(
        FaultWithRules(name, members[0].fault_title(), tuple(members))
        for name, members in found.items()
        if members
    )


def find_fault(name: str) -> FaultWithRules | None:
    """The fault of that name with all its rules; None where none has it."""
    fault = fault_by_name(name)
    if fault is None:
        return None
    (found,) = group_rules_by_fault(rule for rule in all_rules() if rule.fault is fault)
    return found


def find_rule(name: str) -> type[Rule[Any]]:
    """The rule of that name or code. Raises UsageError."""
    own_name = FORMER_NAMES.get(name.lower(), name.lower())
    for rule in all_rules():
        if own_name == rule.name() or rule.code in (
            name.upper(),
            FORMER_CODES.get(name.upper()),
        ):
            return rule
    if any(_is_named_by(rule, name) for rule in all_rules()):
        raise UsageError(f"{name} means several rules; `truetune rules {name}` lists them")
    raise UsageError(
        f"no rule is called {name!r}{_nearest_name_suggestion(name)}; `truetune rules` lists them"
    )


# One run selects at each of its stations, and each word is compared with all rules.
@lru_cache(maxsize=256)
def _rules_named_by(wanted: str) -> frozenset[type[Rule[Any]]]:
    """The rules that a word means. Raises UsageError if there is none."""
    named = frozenset(rule for rule in all_rules() if _is_named_by(rule, wanted))
    if not named:
        raise UsageError(
            f"no rule is called {wanted!r}{_nearest_name_suggestion(wanted)}; `truetune rules` lists them"
        )
    return named


def _is_named_by(rule: type[Rule[Any]], wanted: str) -> bool:
    """Is the rule meant, by its name, its code or the beginning of it, those of before, its fault or its stability?"""
    if wanted.lower() in STABILITIES:
        return wanted.lower() == rule.stability
    if rule.name() == FORMER_NAMES.get(wanted, wanted) or rule.code.startswith(wanted.upper()):
        return True
    if rule.fault_name() == wanted.lower():
        return True
    return rule.code in current_codes_of_former(wanted)


def _nearest_name_suggestion(wanted: str) -> str:
    """` (did you mean ...?)` with the nearest name, code or fault; empty where none is near."""
    names = [name for rule in all_rules() for name in (rule.name(), rule.code)]
    names += [fault.kebab_name for fault in Fault]
    close = difflib.get_close_matches(wanted, names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
