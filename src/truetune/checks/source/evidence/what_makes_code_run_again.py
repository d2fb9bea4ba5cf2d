"""Says what makes code run again: a loop, a function that is applied to each row, or the handler of
a request.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.text_generation_calls import row_mapping_calls_of
from truetune.source.parsed_source_file import Module

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Chosen: a handler, an agent, a client and a helper; recursion ends in `seen`.
CALLERS = 4
"""Callers that are followed outwards from a function"""
ROUTES = frozenset(("get", "post", "put", "patch", "route", "websocket", "api_route", "on_message"))
"""Decorators of FastAPI, Flask, Starlette and aiohttp that make a function answer requests"""
INTERFACES = ("gradio.Interface", "gradio.ChatInterface", "nicegui.*", "telegram.ext.*Handler")
"""Classes that call the function which they are given for each message"""
EVENTS = ("click", "submit", "change")
"""Methods of gradio's parts that take such a function"""
KEPT = ("cache", "lru_cache", "cache_resource", "cache_data", "experimental_singleton", "singleton")
"""Decorators whose function runs once for each argument"""


class CodeRepetition(NamedTuple):
    """What makes code run again."""

    kind: Literal["loop", "map", "request", "rerun"]
    node: ast.AST
    """The loop or comprehension, the call that applies the function, the function that answers requests, or the place
    that runs again with its script"""
    iterated: tuple[ast.AST, ...] = ()
    """What a loop goes over"""


def repetitions_of(
    module: Module, node: ast.AST, *, runs_once: Callable[[ast.AST], bool] = lambda call: False
) -> Iterator[CodeRepetition]:
    """What makes a node run again, from the inside out, through the functions that call its own.

    A call that `runs_once`, as one whose result is kept, is not followed further.
    """
    seen: set[ast.AST] = set()
    waiting = [(node, 0)]
    while waiting:
        inner, depth = waiting.pop()
        for around in module.parents(inner):
            if isinstance(around, Function):
                if around in seen or result_is_cached(around):
                    break
                seen.add(around)
                yield from _repetitions_by_function(module, around)
                if depth < CALLERS:
                    calls = [
                        one for one in calls_running_function(module, around) if not runs_once(one)
                    ]
                    waiting += [(call, depth + 1) for call in calls]
                break
            repeat = _repetition_by_loop(module, around, inner)
            if repeat is not None:
                yield repeat


def calls_running_function(module: Module, function: Function) -> list[ast.Call]:
    """The calls that run a function; of an `__init__` those that make an object of its class."""
    owner = module.scopes.parent.get(function)
    if isinstance(owner, ast.ClassDef) and getattr(function, "name", "") == "__init__":
        return module.flow.calls_of_function_or_class(owner)
    return module.flow.calls_of_function_or_class(function)


def _repetition_by_loop(module: Module, around: ast.AST, inner: ast.AST) -> CodeRepetition | None:
    """The loop that an enclosing node is, where the code stands in its body and not in what it goes
    over.
    """
    if isinstance(around, ast.For | ast.AsyncFor):
        iterated: tuple[ast.AST, ...] = (around.iter,)
    elif isinstance(around, COMPREHENSIONS):
        iterated = tuple(generator.iter for generator in around.generators)
    else:
        return None
    above = {inner, *module.parents(inner)}
    return None if above & set(iterated) else CodeRepetition("loop", around, iterated)


def _repetitions_by_function(module: Module, function: Function) -> Iterator[CodeRepetition]:
    """The calls that apply a function to rows, and itself where it answers requests."""
    yield from (CodeRepetition("map", call.node) for call in row_mapping_calls_of(module, function))
    if isinstance(function, ast.Lambda):
        return
    if any(
        _decorator_name(one) in ROUTES and isinstance(one, ast.Call)
        for one in function.decorator_list
    ) or _is_interface_message_handler(module, function):
        yield CodeRepetition("request", function)


def _is_interface_message_handler(module: Module, function: Function) -> bool:
    """Is a function given to an interface that calls it for each message?"""
    calls = [*module.calls(*INTERFACES)]
    # `click` and `change` are methods of many libraries.
    if module.mentions("gradio"):
        calls += module.methods(*EVENTS)
    for call in calls:
        handlers = [
            *call.args[:2],
            *(call.keywords[name] for name in ("fn",) if name in call.keywords),
        ]
        if any(module.flow.function_that_expression_names(one) is function for one in handlers):
            return True
    return False


def result_is_cached(function: Function) -> bool:
    """Is the result of a function kept, so that it runs once?"""
    decorators = [] if isinstance(function, ast.Lambda) else function.decorator_list
    return any(_decorator_name(one) in KEPT for one in decorators)


def _decorator_name(decorator: ast.expr) -> str:
    """The last name of a decorator: `post` of `@app.post("/ask")`."""
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")


def uses_repeated_element(module: Module, node: ast.expr, repeat: CodeRepetition) -> bool:
    """Is an expression made from the element of a loop, or from the row that a function is applied
    to?
    """
    names = (part for part in backward_slice(module, node) if isinstance(part, ast.Name))
    for name in names:
        for origin in module.flow.origins(name):
            if origin.element and origin.node in repeat.iterated:
                return True
            if repeat.kind == "map" and isinstance(origin.node, ast.arg):
                return True
    return False
