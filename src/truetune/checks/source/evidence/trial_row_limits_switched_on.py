"""Finds limits on the training rows that a script keeps for a trial, and that the project's own
jobs or settings switch on.

How it works: in the symbolic run of a script, the cut of rows (`select(range(64))`, `rows[:64]`,
`head(64)`) stands in a branch whose test reads a variable of the environment or an option. The job
and shell files around the script say what they give it, also by files that they source; the test is
computed with that value.

The trade-off: only a variable that every job gives which starts the script counts, and a job that
is called a test or a trial is one. A test that can't be computed is not judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from truetune.checks.find_servers_with_base_and_adapter import command_files_of_project
from truetune.checks.source.evidence.small_row_limits_of_trainings import (
    MAX_ROWS,
    SAVES,
    trainings_with_data,
)
from truetune.parsing.environment_variables_in_files import (
    EnvironmentSetting,
    find_environment_settings,
)
from truetune.parsing.shell_commands import CommandFile, last_option
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import compute_operator, constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Frame, NameEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Item,
    Operation,
    Option,
    Result,
    Slice,
    Value,
    parts_of_value,
)

TRIALS = re.compile(
    r"smoke|test|debug|dry|tiny|quick|demo|trial|sanity|mini|(?:^|[\W_])ci(?:$|[\W_])", re.I
)
"""Names of jobs that are to be short"""
CUTTING_METHODS = ("select", "take", "head", "sample", "limit")
MAX_VALUES = 3000
"""Values between a training and its data; a script with rows written out has more, and is not judged"""
MAX_DEPTH = 8
"""Operators and calls of a test. Chosen, not measured"""


class LimitSwitchedOn(NamedTuple):
    """A cut of rows that the project switches on."""

    node: ast.AST
    rows: int
    setting: EnvironmentSetting
    """What switches it on"""


def row_limits_switched_on(module: Module) -> Iterator[LimitSwitchedOn]:
    """The cuts of a file that the project's own jobs switch on, each once."""
    if not any(word in module.text for word in ("environ", "getenv", "add_argument", "parse_args")):
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for cut, node, rows, switches in _row_cuts_of_saved_trainings(trace):
            if node in seen or cut.home is not module:
                continue
            setting = _setting_entering_branches_in_every_job(trace, switches)
            if setting is not None:
                seen.add(node)
                yield LimitSwitchedOn(node, rows, setting)


def _row_cuts_of_saved_trainings(
    trace: Trace,
) -> Iterator[tuple[CallEvent | NameEvent, ast.AST, int, list[Frame]]]:
    """(event, place, rows, the branches around it) of the cuts that a training with a saved model
    may get.
    """
    for training, data in trainings_with_data(trace):
        if not any(save.number > training.number for save in trace.methods(*SAVES)):
            continue
        for value in _source_values(data):
            rows, event = _rows_left_and_cut_event(trace, value)
            if rows is None or event is None or value.node is None:
                continue
            branches = list(event.frames("branch"))
            if branches and rows <= MAX_ROWS:
                yield event, value.node, rows, branches


def _rows_left_and_cut_event(
    trace: Trace, value: Value
) -> tuple[int | None, CallEvent | NameEvent | None]:
    """(the rows that a cut leaves, where it happens); no rows for any other value."""
    if isinstance(value, Result):
        return _rows_left_by_call(value.call), value.call
    rows = _rows_left_by_slice(value) if isinstance(value, Item) else None
    return rows, (_name_event_of_slice(trace, value) if rows is not None else None)


def _name_event_of_slice(trace: Trace, value: Value) -> NameEvent | None:
    """The event at which a slice gets its name; None where it gets none."""
    return next((one for one in trace.uses(value) if isinstance(one, NameEvent)), None)


def _source_values(data: tuple[Value, ...]) -> Iterator[Value]:
    """The values that data are made of."""
    waiting, seen = list(data), set(map(id, data))
    while waiting and len(seen) < MAX_VALUES:
        value = waiting.pop()
        yield value
        fresh = [one for one in parts_of_value(value) if id(one) not in seen]
        seen.update(map(id, fresh))
        waiting += fresh


def _rows_left_by_call(call: CallEvent) -> int | None:
    """The number of rows that `select(range(64))`, `take(64)` or `head(64)` leaves; None for any
    other call.
    """
    if call.method not in CUTTING_METHODS or not call.inputs[1:]:
        return None
    given = call.inputs[1]
    if isinstance(given, Result) and given.call.named("range") and len(given.call.args) == 1:
        given = given.call.args[0]
    elif call.method == "select":
        return None
    return _plain_whole_number(given)


def _rows_left_by_slice(value: Item) -> int | None:
    """The number of rows that a slice leaves: `rows[:64]`; None for any other index."""
    key = value.key
    return _plain_whole_number(key.stop) if isinstance(key, Slice) and key.start is None else None


def _plain_whole_number(value: Value | None) -> int | None:
    """The whole number that a value is; of `min(64, len(rows))` the plain one; None for others."""
    if isinstance(value, Result) and value.call.named("min"):
        numbers = [one for one in map(_plain_whole_number, value.call.args) if one is not None]
        return min(numbers, default=None)
    number = constant_of(value)
    return number if type(number) is int and number > 1 else None


def _setting_entering_branches_in_every_job(
    trace: Trace, branches: list[Frame]
) -> EnvironmentSetting | None:
    """What makes the program enter all branches around a cut, in every job; None where a job does
    not enter one.
    """
    names = {one.name for frame in branches for one in _options_read_by_test(frame.value, 0)}
    if not names:
        return None
    jobs = _settings_of_each_job_but_trials(trace, frozenset(names))
    if not jobs or not all(_all_branches_are_entered(branches, given) for given in jobs):
        return None
    return next(
        (jobs[0][name] for name in sorted(names) if all(name in given for given in jobs)), None
    )


def _all_branches_are_entered(
    branches: list[Frame], given: Mapping[str, EnvironmentSetting]
) -> bool:
    """Does the program enter all of these branches with what a job gives it?"""
    values = {name: one.value for name, one in given.items()}
    for frame in branches:
        holds = _test_value(frame.value, values, 0)
        if holds is NO_CONSTANT or bool(holds) is not frame.taken:
            return False
    return True


def _options_read_by_test(value: Value | None, depth: int) -> Iterator[Option]:
    """The variables and options that a test reads."""
    if value is None or depth > MAX_DEPTH:
        return
    if isinstance(value, Option):
        yield value
        return
    for part in parts_of_value(value):
        yield from _options_read_by_test(part, depth + 1)


def _test_value(value: Value | None, given: dict[str, str], depth: int) -> object:
    """What a test comes to with the values that the project gives; NO_CONSTANT where that is not
    known.
    """
    if value is None or depth > MAX_DEPTH:
        return NO_CONSTANT
    if isinstance(value, Option):
        if value.name in given:
            return given[value.name]
        return None if value.default is None else constant_of(value.default)
    if isinstance(value, Operation):
        parts = [_test_value(one, given, depth + 1) for one in value.operands]
        return _operation_value(value.operator, parts)
    if isinstance(value, Result):
        return _call_value(value.call, given, depth)
    return constant_of(value)


def _operation_value(operator: str, parts: list[object]) -> object:
    """What an operator gives for parts of which some may not be known."""
    known = [one for one in parts if one is not NO_CONSTANT]
    is_known = len(known) == len(parts)
    # One known part may decide: `False and x`, `True or x`.
    if operator == "and":
        return all(known) if is_known or not all(known) else NO_CONSTANT
    if operator == "or":
        return any(known) if is_known or any(known) else NO_CONSTANT
    if not is_known:
        return NO_CONSTANT
    return not parts[0] if operator == "not" else compute_operator(operator, *parts)


def _call_value(call: CallEvent, given: dict[str, str], depth: int) -> object:
    """What a test's call gives: `bool(x)`, `int(x)`, `x.lower()`; NO_CONSTANT for any other."""
    source = call.receiver if call.method else (call.args[0] if call.args else None)
    inner = _test_value(source, given, depth + 1)
    if inner is NO_CONSTANT:
        return NO_CONSTANT
    if call.named("bool"):
        return bool(inner)
    if call.named("int") and isinstance(inner, str | int) and str(inner).isdecimal():
        return int(inner)
    if call.named("str"):
        return str(inner)
    if call.method in ("lower", "strip", "upper") and isinstance(inner, str):
        return str(getattr(inner, call.method)())
    return NO_CONSTANT


def _settings_of_each_job_but_trials(
    trace: Trace, names: frozenset[str]
) -> list[dict[str, EnvironmentSetting]]:
    """What each job gives that starts the script, each file that starts nothing where no job does;
    none of a trial.
    """
    script = Path(trace.entry.path)
    files = list(command_files_of_project(script))
    starting = [one for one in files if _commands_start_script(one, script.name)]
    jobs = starting or [one for one in files if not one.commands]
    if any(TRIALS.search(Path(job.path).stem) for job in jobs):
        return []
    return [
        {
            one.name: one
            for one in (
                *find_environment_settings(job, names),
                *_options_given(job, script.name, names),
            )
        }
        for job in jobs
    ]


def _commands_start_script(file: CommandFile, script: str) -> bool:
    """Does a file of commands start a script?"""
    return any(_command_names_script(command.words, script) for command in file.commands)


def _command_names_script(words: Sequence[str], script: str) -> bool:
    """Is a script among the words of a command, with or without its folder?"""
    return any(word.rpartition("/")[2] == script for word in words)


def _options_given(
    file: CommandFile, script: str, names: frozenset[str]
) -> Iterator[EnvironmentSetting]:
    """The options of these names that a command gives the script; `--smoke` without a value counts
    as true.
    """
    for command in file.commands:
        if not _command_names_script(command.words, script):
            continue
        for name in names:
            value = last_option(command.words, f"--{name}")
            if value is not None and "$" not in value:
                yield EnvironmentSetting(name, value or "True", file.path, command.line)
