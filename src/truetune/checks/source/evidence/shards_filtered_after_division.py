"""Finds rows that each process takes its part of and filters afterwards, so that processes get
unequal numbers of rows.

How it works: loops, comprehensions and `filter` whose rows are a part by the number of the process,
and which leave some of them out by something else. The trade-off: whatever may make the numbers
equal again (a sampler, Join, an agreement among the processes, a fixed number of steps) silences it
for all files that run together.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truetune.checks.source.evidence.multi_process_loops import does_library_manage_processes
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.rows_sharded_twice_over_processes import (
    PROCESS_NUMBER,
    depends_on_process_number,
    leaves_out_rows_of_other_processes,
    takes_process_part,
)
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import spelling_of_variable

WRAPS_MODEL = re.compile(
    r"\b(?:DistributedDataParallel|DDP|FullyShardedDataParallel|FSDP|fully_shard)\("
)
BACKWARD = re.compile(r"\.backward\(")
EVENS_OUT = re.compile(
    r"DistributedSampler|\bJoin\(|\bMIN\b|all_gather|broadcast|\bcycle\(|\bnext\(|StopIteration|max_steps|max_iters"
    r"|\bmin\(|StatefulDistributedSampler|drop_uneven"
)
"""What may give all processes the same number of steps"""
OF_EVALUATION = re.compile(r"eval|valid|\bdev|_dev|test|infer|predict|generat|score", re.I)
BLANK_LINE = re.compile(
    r"not (?:line|ln|l|raw|s)(?:\.strip\(\))?$|(?:line|ln|l|raw|s)\.strip\(\) == ''$"
)
"""A test that leaves out empty lines of a file, of which sound files have none"""
LOOPS = (ast.For, ast.AsyncFor)
ADDS = ("append", "extend", "add", "write")


class FilteredShard(NamedTuple):
    """Rows of one process that are filtered."""

    part: ast.AST
    """Where the part of the process is taken"""
    condition: ast.AST
    """What leaves rows out of it"""


def filtered_shards(module: Module) -> Iterator[FilteredShard]:
    """The parts of a script that each process filters for itself; each part once."""
    if not _runs_loop_without_equalized_steps(module.self_and_files_run_together):
        return
    known: set[ast.AST] = set()
    for found in (
        *_filtered_shards_by_loops(module),
        *_filtered_shards_by_comprehensions(module),
        *_filtered_shards_by_calls(module),
    ):
        if found.part not in known and not _is_named_for_evaluation(module, found.part):
            known.add(found.part)
            yield found


def _runs_loop_without_equalized_steps(parts: Sequence[Module]) -> bool:
    """Do these files train a wrapped model in a loop of their own, and nothing makes the numbers of
    steps equal?
    """
    texts = [part.text for part in parts]
    has_loop = all(any(one.search(text) for text in texts) for one in (WRAPS_MODEL, BACKWARD))
    return (
        has_loop
        and not does_library_manage_processes(parts)
        and not any(map(EVENS_OUT.search, texts))
    )


def _is_named_for_evaluation(module: Module, part: ast.AST) -> bool:
    """Do the names around say that the rows are not trained on?"""
    names = [
        one.name for one in module.parents(part) if isinstance(one, ast.FunctionDef | ast.ClassDef)
    ]
    statement = module.statement(part)
    if isinstance(statement, ast.Assign):
        names.append(ast.unparse(statement.targets[0]))
    if isinstance(part, ast.Subscript):
        names.append(ast.unparse(part.value))
    return any(OF_EVALUATION.search(name) for name in names)


def _filtered_shards_by_loops(module: Module) -> Iterator[FilteredShard]:
    """The filtered parts by loops that add rows to a list, or yield them, and leave some out."""
    for loop in module.nodes(*LOOPS):
        if not isinstance(loop, ast.For | ast.AsyncFor) or BACKWARD.search(ast.unparse(loop)):
            continue
        own = next(
            (one for one in loop.body if leaves_out_rows_of_other_processes(module, one)), None
        )
        part = _process_part_of(module, loop.iter) or own
        condition = _condition_leaving_rows_out(module, loop.body) if part is not None else None
        if part is not None and condition is not None:
            yield FilteredShard(part, condition)


def _process_part_of(module: Module, rows: ast.expr) -> ast.AST | None:
    """The expression that takes the part of a process in what rows are made of; None where they are
    all rows.
    """
    part = next(
        (one for one in backward_slice(module, rows) if takes_process_part(module, one)), None
    )
    return part or _process_part_in_generator(module, rows)


def _process_part_in_generator(module: Module, rows: ast.expr) -> ast.AST | None:
    """The expression that takes the part of a process in a function of the file which yields the
    rows; None where none does.
    """
    name = spelling_of_variable(rows.func) if isinstance(rows, ast.Call) else None
    function = (
        None if name is None else _only_function_or_method_named(module, name.removeprefix("self."))
    )
    if function is None or not any(isinstance(one, ast.Yield) for one in ast.walk(function)):
        return None
    loops = (one for one in ast.walk(function) if isinstance(one, ast.For))
    statements = (one for loop in loops for one in loop.body)
    return next(
        (one for one in statements if leaves_out_rows_of_other_processes(module, one)), None
    )


def _only_function_or_method_named(module: Module, name: str) -> ast.FunctionDef | None:
    """The function or method of a name; None for two, which belong to two classes: it is not known
    which is meant.
    """
    made = [one for one in module.nodes(ast.FunctionDef) if one.name == name]
    return made[0] if len(made) == 1 else None


def _condition_leaving_rows_out(module: Module, body: Sequence[ast.stmt]) -> ast.expr | None:
    """The condition by which a loop leaves a row out; None where it keeps all of them."""
    for number, statement in enumerate(body):
        if not isinstance(statement, ast.If):
            continue
        is_skip = isinstance(statement.body[-1], ast.Continue) and _adds_a_row(body[number + 1 :])
        is_kept = not statement.orelse and _adds_a_row(statement.body)
        test = _condition_beyond_process(module, statement.test)
        if (is_skip or is_kept) and test is not None:
            return test
        # The rows of this process stand under its condition: `if i % world == rank: if len(x) < n: yield x`.
        inner = _condition_leaving_rows_out(module, statement.body) if test is None else None
        if inner is not None:
            return inner
    return None


def _condition_beyond_process(module: Module, test: ast.expr) -> ast.expr | None:
    """What a test asks besides the number of the process; None where that is all, or an empty line."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    return next(
        (
            one
            for one in parts
            if not _does_test_ask_for_process_number(module, one)
            and not BLANK_LINE.fullmatch(ast.unparse(one))
        ),
        None,
    )


def _does_test_ask_for_process_number(module: Module, test: ast.expr) -> bool:
    """Does a test ask which process this is? The row that it asks about comes from a part of this
    process too.
    """
    nodes = list(ast.walk(test))
    has_remainder = any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod) for one in nodes)
    names = [one.id for one in nodes if isinstance(one, ast.Name)]
    names += [one.attr for one in nodes if isinstance(one, ast.Attribute)]
    if any(PROCESS_NUMBER.search(name) for name in names):
        return True
    return has_remainder and depends_on_process_number(module, test)


def _adds_a_row(body: Sequence[ast.stmt]) -> bool:
    """Do statements add to a list, or yield?"""
    for node in (part for one in body for part in ast.walk(one)):
        if isinstance(node, ast.Yield):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ADDS:
                return True
    return False


def _filtered_shards_by_comprehensions(module: Module) -> Iterator[FilteredShard]:
    """The filtered parts by comprehensions: `[x for x in rows[rank::world] if len(x) < n]`."""
    for made in module.nodes(ast.ListComp, ast.GeneratorExp):
        if not isinstance(made, ast.ListComp | ast.GeneratorExp):
            continue
        first = made.generators[0]
        part = _process_part_of(module, first.iter) or (
            made if takes_process_part(module, made) else None
        )
        tests = (
            _condition_beyond_process(module, test) for one in made.generators for test in one.ifs
        )
        condition = next((test for test in tests if test is not None), None)
        if part is not None and condition is not None:
            yield FilteredShard(part, condition)


def _filtered_shards_by_calls(module: Module) -> Iterator[FilteredShard]:
    """The filtered parts by calls: `rows.shard(world, rank).filter(fits)`, and Python's own filter."""
    for call in (*module.methods("filter"), *module.calls("filter")):
        rows = call.receiver if call.method == "filter" else call.argument(1, "iterable")
        part = _process_part_of(module, rows) if rows is not None else None
        if part is not None and part is not call.node:
            yield FilteredShard(part, call.node)
