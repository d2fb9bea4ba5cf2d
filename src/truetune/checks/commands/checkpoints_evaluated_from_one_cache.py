"""All checkpoints of a loop use the cache or output file of the first one.

## What it does
Reads the loops of shell scripts and job files, and Slurm job arrays. It fires if a run of lm_eval loads different
weights in each pass while the path of `--use_cache` stays the same, and for two such runs in one file. It also fires if
a merged folder or a results file is only created if it does not exist yet, under one path for all passes. It counts
"Requests remaining: 0" in logs next to the script. It does not fire if a pass removes the path or changes its folder.

## Why it is bad
lm_eval looks up answers only by the prompt and the generation settings, not by the model. The first checkpoint is run,
and the others get its answers: all scores are identical, and training seems to stop having an effect. In the same way,
a file that exists is not created again and stays that of the first checkpoint.

## Example
```bash
for step in 200 400 600; do
  lm_eval -b 8 --model hf --model_args pretrained=org/base-8b,peft=out/checkpoint-$step --tasks gsm8k \\
    --use_cache cache/gsm8k
done
```

## Use instead
```bash
for step in 200 400 600; do
  lm_eval -b 8 --model hf --model_args pretrained=org/base-8b,peft=out/checkpoint-$step --tasks gsm8k \\
    --use_cache cache/gsm8k-$step
done
```

## Fix safety
The scores change, and each checkpoint takes its full evaluation time. Delete the old cache or files first.

## References
- EleutherAI/lm-evaluation-harness, lm_eval/api/model.py (`CachingLM`, `hash_args`)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.read_evaluation_harness_commands import HarnessRun, find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.checks.shell_loops import (
    ASSIGNED,
    DIFFERS,
    NAME,
    ShellLoop,
    find_loops,
    without_leading_shell_keywords,
)
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option

WEIGHTS = ("pretrained", "peft", "delta", "revision", "subfolder", "lora_local_path")
"""Arguments of lm_eval's models that say which weights are loaded"""
TESTS = ("[", "[[", "test")
KINDS_OF_TEST = ("-f", "-e", "-d", "-s")
PROGRAM = re.compile(
    r"(?:^|/)(?:python[\d.]*|accelerate|torchrun|lm[_-]eval|llamafactory-cli|axolotl|swift|trl|uv|vllm|mergekit\S*)$"
)
NAMES_A_MODEL = re.compile(
    r"checkpoint|ckpt|adapter|model|peft|lora|step|epoch|merge|pretrained", re.I
)
REMOVES = ("rm", "mv", "unlink", "cd", "pushd", "trash")
ALL_CACHED = re.compile(r"Cached requests: [1-9]\d*, Requests remaining: 0\b")
ARRAY_OPTIONS = ("--array", "-a")
ARRAY_VARIABLE = "SLURM_ARRAY_TASK_ID"
LOG_SUFFIXES = (".log", ".out", ".err", ".txt")
MAX_LOGS = 12
"""Logs beside a script that are read. Chosen, not measured: each is read whole"""


class SharedPath(NamedTuple):
    """A path that several models use, with the command that uses it."""

    command: ShellCommand
    path: str
    name: str
    """The variable by which the models differ; empty for two commands"""
    is_cache: bool


class CheckpointsEvaluatedFromOneCache(CommandRule):
    code = "CMD090"
    fault = Fault.ANSWERS_REUSED_FOR_ANOTHER_MODEL
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    stability = "preview"
    what = "commands in loops, and runs of lm_eval with a cache"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ShellCommand]:
        """The places that the rule looks at: the commands in loops, and runs of lm_eval with a cache."""
        for loop in find_loops(file):
            yield from (one for one in loop.commands if PROGRAM.search(_program_name(one)))
        yield from (run.command for run in find_harness_runs(file) if _cache_path(run))

    def findings(self) -> Iterator[Finding]:
        seen: set[tuple[int, str]] = set()
        for shared in _shared_paths(self.subject):
            if (shared.command.line, shared.path) in seen:
                continue
            seen.add((shared.command.line, shared.path))
            own = f'{shared.path}-$(basename "${shared.name}")' if shared.name else ""
            if shared.is_cache:
                message = (
                    f"several models share one lm_eval cache, {shared.path}, which ignores the model: each later one"
                    " gets the answers of the first"
                )
                remedy = (
                    f"give each model its own cache, --use_cache {own or shared.path + '-2'}, and first delete"
                    f' "{shared.path}"_rank*.db'
                )
            else:
                message = (
                    f"{shared.path} is only created if it does not exist, and all passes of the loop use this one"
                    " path: each later pass gets the result of the first"
                )
                remedy = f"use a path for each pass, {own}, in all commands of the loop, and delete the old one"
            yield self.finding(
                message,
                remedy,
                evidence=_evidence_of_cached_runs(Path(self.subject.path).parent)
                if shared.is_cache
                else (),
                cases=[self.case_of_command(shared.command, shared.command.text[:300])],
            )


def _shared_paths(file: CommandFile) -> Iterator[SharedPath]:
    """The paths that several models share."""
    loops = list(find_loops(file))
    if any(name in file.requests for name in ARRAY_OPTIONS):
        loops.append(_job_array_as_loop(file))
    for loop in loops:
        yield from _caches_shared_in_loop(file, loop)
        yield from _paths_made_by_first_pass(loop)
    runs = [run for run in find_harness_runs(file) if _cache_path(run)]
    for first, second in itertools.combinations(runs, 2):
        if _runs_share_a_cache(file, first, second):
            yield SharedPath(second.command, _cache_path(second), "", is_cache=True)


def _caches_shared_in_loop(file: CommandFile, loop: ShellLoop) -> Iterator[SharedPath]:
    """The caches that stay the same while the weights differ from pass to pass."""
    for run in find_harness_runs(CommandFile(file.path, loop.text, loop.commands)):
        path = _cache_path(run)
        weights = ",".join(run.model_argument(name) or "" for name in WEIGHTS)
        names = loop.loop_variables_in(weights)
        # Each task of an array is a job of its own, with variables of its own.
        is_by_task = ARRAY_VARIABLE in loop.names and "SLURM_" in path
        if not path or not names or is_by_task or not loop.is_same_in_each_pass(path):
            continue
        if not _may_loop_pass_remove_path(loop, path):
            yield SharedPath(run.command, path, min(names), is_cache=True)


def _job_array_as_loop(file: CommandFile) -> ShellLoop:
    """The tasks of a job array as passes of a loop."""
    whole = CommandFile(
        file.path, f"for {ARRAY_VARIABLE} in 1\n{file.text}\ndone", file.commands, file.requests
    )
    head = ShellCommand(("for", ARRAY_VARIABLE, "in", "1"), 1, "")
    last = ShellCommand(("done",), len(whole.text.splitlines()), "")
    looped = CommandFile(file.path, whole.text, (head, *file.commands, last), file.requests)
    return list(find_loops(looped))[-1]


def _cache_path(run: HarnessRun) -> str:
    """The path of a run's cache; empty without one."""
    return last_option(run.options, "--use_cache", "-c") or ""


def _runs_share_a_cache(file: CommandFile, first: HarnessRun, second: HarnessRun) -> bool:
    """Do two runs ask different weights the same tasks with one cache, which nothing removes between them?"""
    weights = [tuple(run.model_argument(name) for name in WEIGHTS) for run in (first, second)]
    tasks = [
        set((last_option(run.options, "--tasks", "-t") or "").split(",")) for run in (first, second)
    ]
    path = _cache_path(first)
    between = [one for one in file.commands if first.command.line < one.line < second.command.line]
    is_kept = not any(_may_command_remove(one, path) for one in between)
    is_one = path == _cache_path(second) and _has_single_valued_variables(
        file, first.model_with_arguments_as_written + second.model_with_arguments_as_written + path
    )
    return is_one and is_kept and weights[0] != weights[1] and bool(tasks[0] & tasks[1])


def _has_single_valued_variables(file: CommandFile, text: str) -> bool:
    """Has each variable of a text one value in the file?"""
    assigned = [name for name, _, _ in ASSIGNED.findall(file.text)]
    names = set(NAME.findall(text))
    loops = frozenset(name for loop in find_loops(file) for name in loop.names)
    is_plain = DIFFERS.search(text) is None and not any(name.isdecimal() for name in names)
    return is_plain and not names & loops and all(assigned.count(name) <= 1 for name in names)


def _paths_made_by_first_pass(loop: ShellLoop) -> Iterator[SharedPath]:
    """The paths of a loop that only the first pass makes, since later ones find them there."""
    for number, command in enumerate(loop.commands):
        path = _path_tested_for_existence(command)
        if (
            not path
            or not loop.is_same_in_each_pass(path)
            or _may_loop_pass_remove_path(loop, path)
        ):
            continue
        for guarded in _commands_run_if_path_missing(loop, number):
            name = _loop_variable_of_model(loop, guarded)
            if name and _names_path_or_its_folder(guarded, path):
                yield SharedPath(guarded, path, name, is_cache=False)
                break


def _path_tested_for_existence(command: ShellCommand) -> str:
    """The path whose existence a command tests; empty where it tests none, or several."""
    words = without_leading_shell_keywords(command.words)
    kinds = [number for number, word in enumerate(words) if word in KINDS_OF_TEST]
    if words[:1] and words[0] in TESTS and len(kinds) == 1 and kinds[0] + 1 < len(words):
        return words[kinds[0] + 1]
    return ""


def _commands_run_if_path_missing(loop: ShellLoop, number: int) -> Iterator[ShellCommand]:
    """The commands that run only where the path of a test, the command at `number` of the loop, is
    missing.
    """
    test = loop.commands[number]
    rest = loop.commands[number + 1 :]
    is_negated = "!" in test.words
    is_block = test.words[0] == "if" or test.words[:2] == ("do", "if")
    block = list(itertools.takewhile(lambda one: one.words[0] not in ("fi", "else", "elif"), rest))
    if is_block:
        if is_negated:
            yield from block
        elif any("continue" in one.words for one in block):
            yield from rest[len(block) :]
        return
    same_line = [one for one in rest if one.line == test.line]
    if same_line and "continue" in same_line[0].words:
        yield from rest[1:]
    elif is_negated or "||" in loop.text.splitlines()[test.line - loop.line]:
        yield from same_line


def _program_name(command: ShellCommand) -> str:
    """The name of the program that a command starts."""
    words = without_leading_shell_keywords(command.words)
    return words[0] if words else ""


def _loop_variable_of_model(loop: ShellLoop, command: ShellCommand) -> str:
    """The loop's variable by which a command names its model; empty where it names none so."""
    if not PROGRAM.search(_program_name(command)):
        return ""
    before = ""
    for word in command.words:
        names = loop.loop_variables_in(word)
        if names and NAMES_A_MODEL.search(f"{before} {word}"):
            return min(names)
        before = word
    return ""


def _names_path_or_its_folder(command: ShellCommand, path: str) -> bool:
    """Does a command name a path, or the folder that it is in?"""
    values = [word.rpartition("=")[2].rstrip("/") for word in command.words]
    return any(
        value == path.rstrip("/") or path.startswith(f"{value}/") for value in values if value
    )


def _may_loop_pass_remove_path(loop: ShellLoop, path: str) -> bool:
    """May a pass remove a path, or work in a folder of its own?"""
    return any(_may_command_remove(command, path) for command in loop.commands)


def _may_command_remove(command: ShellCommand, path: str) -> bool:
    """May a command remove a path, or change the folder that it is in?"""
    words = without_leading_shell_keywords(command.words)
    if not words or words[0] not in REMOVES:
        return False
    if words[0] in ("cd", "pushd"):
        return not path.startswith("/")
    named = [word.rstrip("*/") for word in words[1:] if not word.startswith("-")]
    return any(path.startswith(one) or one.startswith(path) for one in named if one)


def _evidence_of_cached_runs(folder: Path) -> Iterator[str]:
    """What logs beside a script say of runs that took every answer from the cache."""
    logs = sorted(path for path in folder.iterdir() if path.suffix in LOG_SUFFIXES)
    for path in logs[:MAX_LOGS]:
        try:
            text = read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
        except (OSError, InputLimitError):
            continue
        matches = list(ALL_CACHED.finditer(text))
        if matches:
            line = text.count("\n", 0, matches[0].start()) + 1
            yield f"{path.name}:{line} says {matches[0][0]!r} ({len(matches)} times in it): no model was run"
