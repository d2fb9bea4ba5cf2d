r"""The few-shot examples of an evaluation are among the evaluated rows: their answers are in the prompt.

## What it does
Looks at few-shot examples (`shots`, `demonstrations`) that are the first rows of a list or data set, or sampled from
it once or for each row, and at loops of the same file that evaluate a model on all of its rows. It fires if nothing
removes the examples.

## Why it is bad
For each of these rows the prompt contains the question with its answer. With 4 examples and 50 rows, up to 8 points of
the score are copied from the prompt.

## Example
```python
from transformers import pipeline

ask = pipeline("text-generation", model="out")
rows = read("test.jsonl")
shots = "".join(f"Q: {row['question']}\nA: {row['answer']}\n" for row in rows[:4])
for start in range(0, len(rows), 16):
    prompts = [f"{shots}Q: {row['question']}\nA:" for row in rows[start : start + 16]]
    print(ask(prompts, batch_size=16, max_new_tokens=64))
```

## Use instead
```python
from transformers import pipeline

ask = pipeline("text-generation", model="out")
rows = read("test.jsonl")
shots = "".join(f"Q: {row['question']}\nA: {row['answer']}\n" for row in rows[:4])
for start in range(4, len(rows), 16):
    prompts = [f"{shots}Q: {row['question']}\nA:" for row in rows[start : start + 16]]
    print(ask(prompts, batch_size=16, max_new_tokens=64))
```

## Fix safety
There is no automatic fix. If you take the examples from the training rows instead, all test rows can be evaluated. The
score falls to its true value.

## References
- EleutherAI/lm-evaluation-harness documentation, `fewshot_split`
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
from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module

SHOTS_NAME = re.compile(
    r"(^|_)(few_?)?shots?(_|$)|demonstration|(^|_)demos?$|(^|_)icl(_|$)|few_?shot|in_context", re.I
)
ASKS = re.compile(
    r"^(generate|chat|ask\w*|complete|create|predict|answer\w*|pipe\w*|query\w*|llm|get_response\w*)$"
)
"""Names of what asks a model"""
SHOWING = frozenset(("print", "pprint", "info", "debug", "display"))
"""Calls that only show what they are given"""

DROPS = frozenset(("remove", "pop", "discard", "filter"))
"""Calls that take something out of a list"""


class SharedShots(NamedTuple):
    """Examples that are among the rows which are asked."""

    shots: ast.expr
    loop: ast.For
    rows: str


def shots_of_file(module: Module) -> Iterator[tuple[ast.Assign, ast.expr, str]]:
    """The examples that a file takes from rows: the assignment, the place that takes them, the rows' name."""
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if not isinstance(target, ast.Name) or not SHOTS_NAME.search(target.id):
            continue
        for part in ast.walk(node.value):
            rows = _rows_taken_from(part)
            if rows is not None and isinstance(part, ast.expr):
                yield node, part, rows
                break


def _rows_taken_from(node: ast.AST) -> str | None:
    """The rows that a slice from their beginning, or a draw, takes some of."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        is_head = node.slice.lower is None and node.slice.upper is not None
        return node.value.id if is_head and isinstance(node.value, ast.Name) else None
    if isinstance(node, ast.Call) and last_name_of_called(node) in ("sample", "select"):
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        given = owner if last_name_of_called(node) == "select" else next(iter(node.args), None)
        return given.id if isinstance(given, ast.Name) else None
    return None


def shots_among_asked_rows(module: Module) -> Iterator[SharedShots]:
    """The examples of a file that are among the rows it asks, each once."""
    for node, taken, rows in shots_of_file(module):
        for loop in module.nodes(ast.For):
            if loop.lineno < node.lineno or not _iterates_all(loop.iter, rows):
                continue
            if _are_rows_set_again_between(module, rows, node, loop) or _leaves_rows_out(loop):
                continue
            if _asks_a_model(loop) and not _are_examples_only_printed(module, node.targets[0]):
                yield SharedShots(taken, loop, rows)
                break


def shots_drawn_for_each_row(module: Module) -> Iterator[SharedShots]:
    """The examples that are drawn for each row from all rows of a loop, in the loop or in a function that it calls.

    The row that is asked may be among them, and those of the other rows are shown in any case.
    """
    for loop in module.nodes(ast.For):
        if not _asks_a_model(loop):
            continue
        candidates = [(draw, draw.args[0]) for draw in _draws_of_shots(loop)]
        for call in (part for part in ast.walk(loop) if isinstance(part, ast.Call)):
            candidates += _draws_of_called_function(module, loop, call)
        for draw, pool in candidates:
            if _iterates_same_list(module, loop, pool):
                yield SharedShots(draw, loop, ast.unparse(pool))
                break


def _draws_of_shots(home: ast.For | ast.FunctionDef) -> Iterator[ast.Call]:
    """The draws of examples in a loop or function that drops none of them again: `shots = random.sample(rows, 4)`."""
    for node in ast.walk(home):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        draw = node.value
        if last_name_of_called(draw) != "sample" or len(draw.args) < 2:
            continue
        is_of_shots = any(SHOTS_NAME.search(name) for name in _names_in(node))
        if is_of_shots and not _may_drop_examples(home, _names_in(node.targets[0])):
            yield draw


def _names_in(node: ast.AST) -> set[str]:
    """The names that stand in some code."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _may_drop_examples(home: ast.For | ast.FunctionDef, examples: set[str]) -> bool:
    """May some examples be dropped: are they, or items of a list, compared or taken out of it?"""
    items = set(examples)
    for part in ast.walk(home):
        if isinstance(part, ast.comprehension | ast.For) and part is not home:
            items |= _names_in(part.target)
    return any(_drops_or_compares(part, items) for part in ast.walk(home))


def _drops_or_compares(part: ast.AST, items: set[str]) -> bool:
    """Is it a call that takes something out of a list, or a comparison of one of these items?"""
    if isinstance(part, ast.Call):
        return last_name_of_called(part) in DROPS
    return isinstance(part, ast.Compare) and not items.isdisjoint(_names_in(part))


def _draws_of_called_function(
    module: Module, loop: ast.For, call: ast.Call
) -> list[tuple[ast.Call, ast.expr]]:
    """The draws of a function that gets the row of a loop, each with what the loop calls the rows it draws from."""
    function = module.flow.function_called(call.func)
    if not isinstance(function, ast.FunctionDef) or not _gets_row_of_loop(loop, call):
        return []
    values = dict(zip((one.arg for one in function.args.args), call.args, strict=False))
    values |= {one.arg: one.value for one in call.keywords if one.arg is not None}
    pools = ((draw, draw.args[0]) for draw in _draws_of_shots(function))
    return [
        (draw, values[pool.id])
        for draw, pool in pools
        if isinstance(pool, ast.Name) and pool.id in values
    ]


def _gets_row_of_loop(loop: ast.For, call: ast.Call) -> bool:
    """Is the row of a loop an argument of a call?"""
    row = _names_in(loop.target)
    values = [*call.args, *(one.value for one in call.keywords)]
    return any(isinstance(one, ast.Name) and one.id in row for one in values)


def _iterates_same_list(module: Module, loop: ast.For, pool: ast.expr) -> bool:
    """Are the rows that are drawn from those of a loop, also under a second name: `pool = test`?"""
    if not isinstance(pool, ast.Name):
        return False
    set_to = [
        node.value
        for node in module.nodes(ast.Assign)
        if any(isinstance(one, ast.Name) and one.id == pool.id for one in node.targets)
    ]
    other = set_to[0] if len(set_to) == 1 else None
    names = [pool.id, *([other.id] if isinstance(other, ast.Name) else [])]
    return any(_iterates_all(loop.iter, name) for name in names)


def _asks_a_model(loop: ast.For) -> bool:
    """Does a loop ask a model?"""
    calls = (part for part in ast.walk(loop) if isinstance(part, ast.Call))
    return any(ASKS.match(last_name_of_called(call)) for call in calls)


def _are_examples_only_printed(module: Module, shots: ast.expr) -> bool:
    """Is all that is done with the examples to print them?"""
    if not isinstance(shots, ast.Name):
        return False
    home = module.scopes.scope_that_binds_name(shots)
    named = module.name_reads.get(shots.id, ())
    reads = [one for one in named if module.scopes.scope_that_binds_name(one) is home]
    calls = [
        next((up for up in module.parents(one) if isinstance(up, ast.Call)), None) for one in reads
    ]
    return all(call is not None and last_name_of_called(call) in SHOWING for call in calls)


def _iterates_all(iterated: ast.expr, rows: str) -> bool:
    """Does a loop go over all rows: `rows`, `enumerate(rows)`, `tqdm(rows)`, `range(0, len(rows), size)`?"""
    if isinstance(iterated, ast.Name):
        return iterated.id == rows
    if not isinstance(iterated, ast.Call):
        return False
    name = last_name_of_called(iterated)
    if name in ("tqdm", "enumerate", "list", "iter", "zip"):
        return any(_iterates_all(one, rows) for one in iterated.args)
    if name == "range":
        begins = ast.unparse(iterated.args[0]) if len(iterated.args) > 1 else "0"
        return begins == "0" and any(ast.unparse(one) == f"len({rows})" for one in iterated.args)
    return False


def _are_rows_set_again_between(module: Module, rows: str, first: ast.AST, last: ast.For) -> bool:
    """Are the rows set again between two places?"""
    begin = getattr(first, "lineno", 0)
    return any(
        name.id == rows and isinstance(name.ctx, ast.Store) and begin < name.lineno < last.lineno
        for name in module.nodes(ast.Name)
    )


def _leaves_rows_out(loop: ast.For) -> bool:
    """Does a loop pass over some rows, or compare each with the examples: `row not in shots`, `shot is not row`?"""
    names = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
    return any(
        isinstance(part, ast.Continue)
        or (isinstance(part, ast.Compare) and _compares_row(part, names))
        for part in ast.walk(loop)
    )


def _compares_row(test: ast.Compare, names: set[str]) -> bool:
    """Is a row, or its number, compared as a whole with what stands under another name?"""
    sides = [test.left, *test.comparators]
    compared = [side.id for side in sides if isinstance(side, ast.Name)]
    return len(compared) == len(sides) and any(one in names for one in compared)


def places_that_take_shots(module: Module) -> Iterator[object]:
    """The places of a file that take few-shot examples from rows, once or for each row."""
    yield from shots_of_file(module)
    yield from shots_drawn_for_each_row(module)


class ShotsAmongTheEvaluatedRows(SourceRule):
    code = "SRC478"
    fault = Fault.ANSWER_READABLE_FROM_PROMPT
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces("few-shot examples that are taken from rows", places_that_take_shots)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for shared in shots_among_asked_rows(module):
            yield self.finding(
                f"the few-shot examples are taken from {shared.rows}, and all of {shared.rows} is evaluated: the"
                " answers to these rows are in the prompt",
                f"take the examples from the training rows, or leave them out when you loop over {shared.rows}",
                cases=[
                    case_of_node(module, shared.shots),
                    case_of_node(module, shared.loop.iter),
                ],
            )
        for drawn in shots_drawn_for_each_row(module):
            yield self.finding(
                f"the few-shot examples of each row are drawn from {drawn.rows}, which are the rows that are evaluated:"
                " the row itself, with its answer, may be among them",
                f"draw the examples from the training rows, or from {drawn.rows} without the row that is asked",
                cases=[case_of_node(module, drawn.shots), case_of_node(module, drawn.loop.iter)],
            )
