"""A failed request to a judge still gets a score: the exception handler returns a constant.

## What it does
Inspects functions that ask a model for a score inside a `try`. It fires if the handler of all exceptions, or of the
API's, returns a number or `tie`, written there or as a parameter's default. It also reports a retry loop with the
constant after it, a number that replaces the exceptions in the result of `asyncio.gather(..., return_exceptions=True)`,
and a function that reads a judge's reply and returns a number above zero if it can't be parsed. Not reported: a handler
that raises, returns None, nan or a negative value, or counts or keeps the failure.

## Why it is bad
A wrong key, a used-up quota or a rate limit (429) gives every model that constant as its score: 5.0 for all of them
looks like a judge without an opinion.

## Example
```python
from openai import OpenAI

client = OpenAI()


def judge(prompt):
    try:
        reply = client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": prompt}])
        return int(reply.choices[0].message.content)
    except Exception:
        return 5
```

## Use instead
```python
from openai import OpenAI

client = OpenAI(max_retries=8)


def judge(prompt):
    reply = client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": prompt}])
    try:
        return int(reply.choices[0].message.content)
    except ValueError:
        return None
```

## Fix safety
There is no automatic fix. Count the rows without a verdict, and print their number next to the mean of the others.

## References
- openai/openai-python README, "Handling errors", "Retries" (`max_retries`)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module

Function = ast.FunctionDef | ast.AsyncFunctionDef
REQUEST = re.compile(
    r"(?:completions|responses|messages)\.(?:create|parse)$|(?:^|\.)(?:requests|httpx|session|client)\.post$"
    r"|^litellm\.a?completion$|^ollama\.(?:chat|generate)$|\.generate_content$|\.messages\.create$"
)
BROAD = re.compile(
    r"^(?:Base)?Exception$|(?:API|RateLimit|Timeout|Connection|HTTP|Request)\w*(?:Error|Exception|Timeout)$|^httpx\."
)
IS_A_SCORE = re.compile(r"judge|score|rate|rating|grade|verdict|evaluat|compare|prefer|win", re.I)
READS_A_SCORE = re.compile(
    r"(?:pars|extract|read|get|to)\w*_?(?:score|rating|grade|verdict)|(?:score|rating|grade)_(?:of|from)",
    re.I,
)
"""Names of functions that make a score of a reply"""
TIES = frozenset(("tie", "draw", "equal", "same"))


class ConstantScore(NamedTuple):
    """A request of a judge, and what a failure of it is scored."""

    request: ast.Call
    statement: ast.stmt
    value: object


def _judge_requests_in_try(module: Module) -> Iterator[tuple[ast.Try, ast.Call]]:
    """Requests inside of `try`."""
    for node in module.nodes(ast.Try):
        request = _first_request_in(module, node.body)
        if request is not None:
            yield node, request


def _request_calls(module: Module) -> Iterator[ast.AST]:
    """Requests, wherever they stand."""
    for call in module.all_calls:
        if REQUEST.search(ast.unparse(call.node.func)):
            yield call.node


class FailedRequestGetsAScore(SourceRule):
    code = "SRC302"
    fault = Fault.WRONG_ANSWERS_COUNTED_RIGHT
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces("requests to a model", _request_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for fixed_score in (*_scores_of_handlers(module), *_scores_standing_for_exceptions(module)):
            yield self.finding(
                f"a failed request to the judge is scored {fixed_score.value!r}: with a used-up quota or a rate"
                " limit every model gets this score",
                "let the client retry (OpenAI(max_retries=8)), return None if it still fails, and print the number"
                " of failed"
                " requests next to the mean of the others",
                cases=[
                    case_of_node(module, fixed_score.statement),
                    case_of_node(module, fixed_score.request),
                ],
            )
        for fixed_score in _scores_of_unreadable_replies(module):
            yield self.finding(
                f"a reply that can't be parsed is scored {fixed_score.value!r}: a refusal, a cut reply or an error"
                " message counts as this score, for every model",
                "return None, and print the number of such replies next to the mean of the others",
                cases=[
                    case_of_node(module, fixed_score.statement),
                    case_of_node(module, fixed_score.request),
                ],
            )


def _scores_standing_for_exceptions(module: Module) -> Iterator[ConstantScore]:
    """The scores that a choice puts in the place of failed requests, which are among the results.

    `[r if isinstance(r, float) else 5.0 for r in results]`
    """
    for call in module.calls("asyncio.gather"):
        if module.flow.value(call.keywords.get("return_exceptions")) is not True:
            continue
        gathering = module.statement(call.node)
        if gathering is None or _first_request_in(module, [gathering]) is None:
            continue
        names = _names_set_by(gathering)
        for chosen in module.nodes(ast.IfExp):
            value = _constant_for_exception(chosen)
            statement = module.statement(chosen)
            if value is None or statement is None or not names & _names_read(statement):
                continue
            if IS_A_SCORE.search(ast.unparse(statement)):
                yield ConstantScore(call.node, statement, value)


def _names_set_by(statement: ast.stmt) -> set[str]:
    """The names that a statement sets."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _names_read(statement: ast.stmt) -> set[str]:
    """The names that a statement reads."""
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _constant_for_exception(chosen: ast.IfExp) -> object:
    """The score that stands for an exception in a choice by `isinstance`; None where there is none."""
    if "isinstance(" not in ast.unparse(chosen.test):
        return None
    constants = [one for one in (chosen.body, chosen.orelse) if isinstance(one, ast.Constant)]
    value = constants[0].value if len(constants) == 1 else None
    return value if _is_number_or_tie(value) and value != 0 else None


def _scores_of_unreadable_replies(module: Module) -> Iterator[ConstantScore]:
    """Functions that read a judge's reply, and give a number where they can't; in files that ask a model."""
    request = next(_request_calls(module), None)
    if not isinstance(request, ast.Call):
        return
    for guarded in module.nodes(ast.Try):
        function = module.function_around(guarded)
        if function is None or not READS_A_SCORE.search(function.name):
            continue
        if _first_request_in(module, guarded.body) is not None:
            continue
        for handler in guarded.handlers:
            statement = _constant_given_by_handler(guarded, handler, function)
            value = None if statement is None else _constant_of_statement(statement, function)
            if statement is not None and _is_positive_score(value):
                yield ConstantScore(request, statement, value)


def _is_positive_score(value: object) -> bool:
    """Is the value a number above zero? Zero for a reply without a verdict is a usual rule, and
    shows.
    """
    return isinstance(value, int | float) and value > 0


def _first_request_in(module: Module, body: list[ast.stmt]) -> ast.Call | None:
    """The first request in these statements, or in a function of the file that they call."""
    calls = [node for part in body for node in ast.walk(part) if isinstance(node, ast.Call)]
    for call in calls:
        if REQUEST.search(ast.unparse(call.func)):
            return call
    for call in calls:
        function = module.flow.function_that_expression_names(call.func)
        inner = ast.walk(function) if function is not None else ()
        if any(
            isinstance(one, ast.Call) and REQUEST.search(ast.unparse(one.func)) for one in inner
        ):
            return call
    return None


def _scores_of_handlers(module: Module) -> Iterator[ConstantScore]:
    """The handlers of failed requests that give a score."""
    for guarded, request in _judge_requests_in_try(module):
        function = module.function_around(guarded)
        if not _gives_a_score(function, guarded):
            continue
        for handler in guarded.handlers:
            if not _catches_failed_requests(handler):
                continue
            statement = _constant_given_by_handler(
                guarded, handler, function
            ) or _constant_after_retry_loop(function, guarded, handler)
            if statement is not None:
                yield ConstantScore(request, statement, _constant_of_statement(statement, function))
                break


def _gives_a_score(function: Function | None, guarded: ast.Try) -> bool:
    """Is what the block makes of the reply a score: by the function's name, or as a number or a key `score`?"""
    if function is not None and IS_A_SCORE.search(function.name):
        return True
    for part in guarded.body:
        value = part.value if isinstance(part, ast.Return | ast.Assign) else None
        target = ast.unparse(part.targets[0]) if isinstance(part, ast.Assign) else ""
        if value is not None and (
            IS_A_SCORE.search(target) or IS_A_SCORE.search(ast.unparse(value))
        ):
            return True
    return False


def _catches_failed_requests(handler: ast.ExceptHandler) -> bool:
    """Does a handler take failed requests, and not only replies that are no number?"""
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(BROAD.search(ast.unparse(kind)) for kind in kinds)


def _constant_given_by_handler(
    guarded: ast.Try, handler: ast.ExceptHandler, function: Function | None
) -> ast.stmt | None:
    """`return 5`, or `score = 5` of a name that the block sets; None where the handler keeps the failure."""
    if any(_failure_is_raised_counted_or_listed(part) for part in handler.body):
        return None
    assigned = {
        ast.unparse(target)
        for part in guarded.body
        if isinstance(part, ast.Assign)
        for target in part.targets
    }
    for part in handler.body:
        is_own = isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) in assigned
        if (isinstance(part, ast.Return) or is_own) and _is_number_or_tie(
            _constant_of_statement(part, function)
        ):
            return part
    return None


def _constant_after_retry_loop(
    function: Function | None, guarded: ast.Try, handler: ast.ExceptHandler
) -> ast.stmt | None:
    """`return 5` after a loop of attempts, whose handler waits and continues."""
    ends = any(
        _failure_is_raised_counted_or_listed(part) or isinstance(part, ast.Return)
        for part in handler.body
    )
    if function is None or ends or not _is_in_retry_loop(function, guarded):
        return None
    last = function.body[-1]
    return (
        last
        if isinstance(last, ast.Return)
        and _is_number_or_tie(_constant_of_statement(last, function))
        else None
    )


def _is_in_retry_loop(function: Function, guarded: ast.Try) -> bool:
    """Is a block tried in a loop of the function, which it leaves with a result?"""
    loops = [one for one in function.body if isinstance(one, ast.For | ast.While)]
    is_repeated = any(guarded in ast.walk(loop) for loop in loops)
    return is_repeated and any(isinstance(node, ast.Return) for node in ast.walk(guarded))


def _failure_is_raised_counted_or_listed(statement: ast.stmt) -> bool:
    """Is a failure raised, counted or put on a list?"""
    return any(
        isinstance(node, ast.Raise | ast.AugAssign)
        or (isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".append", ".add")))
        for node in ast.walk(statement)
    )


def _constant_of_statement(statement: ast.stmt, function: Function | None) -> object:
    """The constant that a statement returns or sets, also as the default of a parameter; None for anything else."""
    value = statement.value if isinstance(statement, ast.Return | ast.Assign) else None
    if isinstance(value, ast.Name) and function is not None:
        value = _default_of(function, value.id)
    return value.value if isinstance(value, ast.Constant) else None


def _default_of(function: Function, name: str) -> ast.expr | None:
    """The default of a parameter; None where it has none."""
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    by_name = dict(zip(reversed(names), reversed(given.defaults), strict=False))
    keyword_only = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    by_name.update({one.arg: value for one, value in keyword_only if value is not None})
    return by_name.get(name)


def _is_number_or_tie(value: object) -> bool:
    """Is it a number that counts, or a tie?"""
    if isinstance(value, str):
        return value.lower() in TIES
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
