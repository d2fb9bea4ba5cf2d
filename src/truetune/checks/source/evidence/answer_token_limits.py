"""Finds the limits of tokens that a script gives to answers, in whatever call or request body they
travel to an engine.

How it works: the symbolic run gives each call with its arguments; dictionaries among them are read
as well. The trade-off: a limit that is not a plain number is left out, and then nothing is said of
the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.values_of_run import Mapping, Value

LIMITS = ("max_new_tokens", "max_tokens", "max_completion_tokens", "num_predict", "n_predict")
MAX_DEPTH = 3
"""Dictionaries in one another: a body, its `options` or `parameters`"""


class AnswerLimit(NamedTuple):
    """The most tokens that an answer may have."""

    name: str
    tokens: int
    node: ast.AST


def largest_answer_limit(module: Module) -> AnswerLimit | None:
    """The largest limit of a file; None where it gives none, or one that is not known."""
    if not any(module.mentions(name) for name in LIMITS):
        return None
    limits: list[AnswerLimit] = []
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.all_calls:
            given = [*_answer_limits_in_arguments(call.keywords)]
            for argument in call.args:
                given += (
                    _answer_limits_in_arguments(argument.entries)
                    if isinstance(argument, Mapping)
                    else []
                )
            for name, value in given:
                tokens = constant_of(value)
                if type(tokens) is not int:
                    return None
                if call.home.path == module.path:
                    limits.append(AnswerLimit(name, tokens, value.node or call.node))
    # A first call of one token warms a server up, or asks for a yes or no.
    return max(limits, key=lambda limit: limit.tokens, default=None)


def _answer_limits_in_arguments(
    entries: dict[str, Value], depth: int = 0
) -> Iterator[tuple[str, Value]]:
    """The limits in the arguments of a call, and in the dictionaries among them."""
    for name, value in entries.items():
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            yield from _answer_limits_in_arguments(value.entries, depth + 1)
        elif name in LIMITS:
            yield name, value
