"""Follows the options that a script takes from its command line by argparse, click or typer, with
their defaults.

The trade-off: a user may give any other value, so a test on an option runs both arms, and only its value counts with
the default.
"""

from __future__ import annotations

import ast

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.values_of_run import (
    Constant,
    Function,
    Library,
    Mapping,
    Opaque,
    Option,
    Result,
    Sequence,
    Unknown,
    Value,
)

PARSING_METHODS = (
    "parse_args",
    "parse_known_args",
    "parse_args_into_dataclasses",
    "parse_args_and_config",
)
OPTIONS = "<options>"
"""The key under which a parser keeps its options"""
GROUPS = ("add_argument_group", "add_mutually_exclusive_group")
"""Methods of a parser whose result adds options to the parser itself"""
COMMAND_DECORATORS = ("command", "main", "command_line")
"""Decorators that give a function its arguments from the command line: click, typer, hydra"""


def _parser_of_option_group(receiver: Opaque) -> Opaque:
    """The parser that a group of options belongs to."""
    while isinstance(receiver, Result) and receiver.call.method in GROUPS:
        outer = receiver.call.receiver
        if not isinstance(outer, Opaque):
            break
        receiver = outer
    return receiver


def record_option_of_add_argument(
    receiver: Opaque, args: tuple[Value, ...], keywords: dict[str, Value]
) -> None:
    """Keep the option that `add_argument` adds."""
    flags = [flag for flag in map(constant_of, args) if isinstance(flag, str)]
    named = constant_of(keywords.get("dest"))
    long_flags = [flag for flag in flags if flag.startswith("--")] or flags
    name = named if isinstance(named, str) else next(iter(long_flags), "")
    name = name.lstrip("-").replace("-", "_")
    action = constant_of(keywords.get("action"))
    default = keywords.get("default")
    if default is None and action in ("store_true", "store_false"):
        default = Constant(action == "store_false")
    options = _parser_of_option_group(receiver).entries.setdefault(OPTIONS, Mapping({}))
    if name and isinstance(options, Mapping):
        node = args[0].node if args else None
        options.entries[name] = Option(name, default, node=node)


def namespace_of_options(parser: Opaque, method: str, node: ast.AST) -> Value | None:
    """The options of a parser as a namespace, as `parse_args` returns it; None if it has none."""
    options = _parser_of_option_group(parser).entries.get(OPTIONS)
    if not isinstance(options, Mapping):
        return None
    namespace = Mapping(dict(options.entries), node=node, is_open=True)
    if method == "parse_known_args":
        return Sequence("tuple", [namespace, Unknown("other arguments")], node=node)
    return namespace


def option_that_fills_parameter(function: Function, name: str) -> Option | None:
    """The option that fills a parameter of a command of click or typer; None for any other function."""
    decorators = [_qualified_or_method_name_of_decorator(one) for one in function.decorators]
    if not any(one.rpartition(".")[2] in COMMAND_DECORATORS for one in decorators):
        return None
    for decorator in function.decorators:
        if isinstance(decorator, Result) and name in _parameters_filled_by_click(decorator):
            return Option(name, decorator.call.keywords.get("default"), node=decorator.node)
    default = function.defaults.get(name)
    if isinstance(default, Result) and default.call.named("typer.Option", "typer.Argument"):
        default = default.call.argument(0, "default")
    return None if default is None else Option(name, default, node=default.node)


def _parameters_filled_by_click(decorator: Result) -> set[str]:
    """The names of the parameter that `@click.option("--batch-size", "-b")` may fill; none of any
    other decorator.
    """
    if not decorator.call.named("click.option"):
        return set()
    flags = [flag for flag in map(constant_of, decorator.call.args) if isinstance(flag, str)]
    return {flag.lstrip("-").replace("-", "_") for flag in flags}


def _qualified_or_method_name_of_decorator(decorator: Value) -> str:
    """The qualified name of a decorator, or its method's name."""
    if isinstance(decorator, Library):
        return decorator.name
    if isinstance(decorator, Result):
        return next(iter(decorator.call.names), decorator.call.method or "")
    return ""
