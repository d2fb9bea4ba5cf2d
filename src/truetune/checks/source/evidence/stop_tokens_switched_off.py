"""Finds settings by which a script switches stop tokens off, in whatever call or request body they
travel to an engine.

How it works: the symbolic run gives each call with its arguments; dictionaries among them are read
with what is spread into them. The trade-off: a file that measures speed switches stopping off on
purpose, and is not judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Choice, Mapping, Value

IGNORES = "ignore_eos"
LEAST = ("min_tokens", "min_new_tokens", "min_length")
MOST = ("max_tokens", "max_completion_tokens", "max_new_tokens", "max_length", "n_predict")
MEASURES_SPEED = re.compile(
    r"benchmark|throughput|tok(?:en)?s?(?:/|\s*per\s*|_per_)s|load.?test|\btps\b|\bttft\b", re.I
)
MIN_LEAST_SHARE = 0.5
"""Of the most tokens, from which a least number leaves answers no room to end"""
MIN_LEAST = 32
"""Tokens; a lower one only keeps answers from being empty"""
MAX_DEPTH = 3
"""Dictionaries in one another: a body, its `extra_body`, and `parameters`"""


class StoppingSwitch(NamedTuple):
    """One setting that keeps answers from ending."""

    node: ast.AST
    text: str
    """What is set, and what it does"""
    name: str


def settings_that_prevent_stopping(module: Module) -> Iterator[StoppingSwitch]:
    """The settings of a file by which no answer can end, each place once."""
    if not any(module.mentions(name) for name in (IGNORES, *LEAST)):
        return
    # Without comments: "as in throughput.py" is where a setting was copied from, and it stayed.
    if MEASURES_SPEED.search(f"{Path(module.path).name}\n{ast.unparse(module.tree)}"):
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.all_calls:
            if call.home.path != module.path or call.is_in_later_loop_pass:
                continue
            for stopping_switch in _settings_preventing_stop_in_call(call):
                if stopping_switch.node not in seen:
                    seen.add(stopping_switch.node)
                    yield stopping_switch


def setting_preventing_stop_and_effect(settings: dict[str, object]) -> tuple[str, str] | None:
    """The name of the setting that keeps answers from ending, and what it does; None where none
    does.
    """
    if settings.get(IGNORES) is True:
        return (
            IGNORES,
            f"{IGNORES} is on: stop tokens are not heeded, and each answer hits max_new_tokens",
        )
    most = next((settings[name] for name in MOST if isinstance(settings.get(name), int)), None)
    for name in LEAST:
        least = settings.get(name)
        if not isinstance(least, int) or not isinstance(most, int) or least < MIN_LEAST:
            continue
        if least >= MIN_LEAST_SHARE * most:
            return name, (
                f"{name} is {least} of {most} tokens at most: no answer may stop before, and short ones run on"
            )
    return None


def _settings_preventing_stop_in_call(call: CallEvent) -> Iterator[StoppingSwitch]:
    """What one call says about stopping."""
    values = dict(_settings_in_arguments(call.keywords))
    for argument in call.args:
        if isinstance(argument, Mapping):
            values.update(_settings_in_arguments(argument.entries))
    plain = {name: constant_of(value) for name, value in values.items()}
    found = setting_preventing_stop_and_effect(plain)
    if found is not None:
        name, text = found
        yield StoppingSwitch(values[name].node or call.node, text, name)


def _settings_in_arguments(
    entries: dict[str, Value], depth: int = 0
) -> Iterator[tuple[str, Value]]:
    """The settings in the arguments of a call, and in the dictionaries among them."""
    for name, value in entries.items():
        inner = value
        if isinstance(inner, Choice) or depth >= MAX_DEPTH:
            continue
        if isinstance(inner, Mapping):
            yield from _settings_in_arguments(inner.entries, depth + 1)
        elif name in (IGNORES, *LEAST, *MOST):
            yield name, inner
