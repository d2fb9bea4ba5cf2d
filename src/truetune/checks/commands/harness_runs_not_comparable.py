"""Two models are evaluated with different few-shot examples, rows or templates.

## What it does
Compares the lm_eval commands in the files of one folder, and the results files of lm_eval and lighteval, which are
recognised by their keys. It fires if two of them run the same task for two models with another number of few-shot
examples (`--num_fewshot`), on all rows and on a part (`--limit`, `max_samples`), or with and without the chat template.
It does not fire for one model that is evaluated in several ways, if an option is a variable, or if an option only
repeats the task's default.

## Why it is bad
The difference between the scores then comes from the setup. Five examples or none can change a score by ten points, the
template by as much, and 200 of 14,042 rows leave an error of seven points. A tuned model looks worse or better than its
base, whatever it learned.

## Example
```bash
lm_eval -b 8 --model_args pretrained=org/base-8b --tasks mmlu --num_fewshot 5 --output_path out/base
lm_eval -b 8 --model_args pretrained=out/tuned --tasks mmlu --num_fewshot 0 --limit 200 --output_path out/tuned
```

## Use instead
```bash
lm_eval -b 8 --model_args pretrained=org/base-8b --tasks mmlu --num_fewshot 5 --output_path out/base
lm_eval -b 8 --model_args pretrained=out/tuned --tasks mmlu --num_fewshot 5 --output_path out/tuned
```

## Fix safety
There is no automatic fix: evaluate both in the same way, on all rows, and compare again.

## References
- EleutherAI/lm-evaluation-harness docs/interface.md (`--limit`: for testing alone), huggingface/lighteval#82
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.read_evaluation_harness_commands import HarnessRun, find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.errors import DataError
from truetune.parsing.lm_eval_results_as_command import (
    few_shot_count_by_task,
    is_lm_eval_or_lighteval_results,
)
from truetune.parsing.shell_commands import (
    CommandFile,
    is_command_file,
    last_option,
    read_command_file,
)

STARTS = (("lm_eval",), ("lm-eval",), ("-m", "lm_eval"), ("lighteval",))
WEIGHT_ARGUMENTS = frozenset(
    (
        "pretrained",
        "peft",
        "lora_local_path",
        "model",
        "model_name",
        "path",
        "engine",
        "revision",
        "subfolder",
        "delta",
        "gguf_file",
        "autogptq",
    )
)
"""Arguments that say which weights are asked; others say how they are loaded"""
NO_EXAMPLES = re.compile(
    r"arc_(easy|challenge)|hellaswag|winogrande|piqa|boolq|openbookqa|sciq|copa|mmlu(_\w+)?|truthfulqa_\w+"
    r"|lambada\w*|ifeval|social_iqa|wikitext"
)
"""Tasks of lm_eval whose own default is no example"""
# Both are chosen, not measured: they bound the time on a folder of many files.
MAX_FILES = 40
"""Results files, or files of commands, beside one that are read"""
MAX_ENTRIES = 2_000
"""Entries of a folder that are listed"""
SHOWN_TASKS = 4
"""Tasks with other examples that a message names"""


class HarnessRunsNotComparable(CommandRule):
    code = "CMD029"
    fault = Fault.EVALUATION_LOSS_NOT_COMPARABLE
    severity = "warning"
    what = "runs of lm_eval and lighteval"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[HarnessRun]:
        """The places that the rule looks at: the runs of lm_eval and lighteval."""
        return find_harness_runs(file, STARTS)

    def findings(self) -> Iterator[Finding]:
        own = list(find_harness_runs(self.subject, STARTS))
        if not own:
            return
        here = Path(self.subject.path)
        pairs = [(one, other, self.subject.path) for one, other in itertools.combinations(own, 2)]
        beside = (
            _result_files_beside(here)
            if is_lm_eval_or_lighteval_results(here)
            else _command_files_beside(here)
        )
        pairs += [
            (one, other, file.path)
            for file in beside
            for other in find_harness_runs(file, STARTS)
            for one in own
        ]
        for one, other, path in pairs:
            if not _share_a_task_on_two_models(one, other):
                continue
            own_setup, other_setup = (
                _setup_of_run(one, self.subject.path),
                _setup_of_run(other, path),
            )
            shared = _task_names(one) & _task_names(other)
            differences = list(_setup_differences(own_setup, other_setup, shared))
            if differences:
                yield self.finding(
                    "the scores of two models can't be compared, because the setup differs:"
                    f" {'; '.join(differences)}",
                    "evaluate both with the same --num_fewshot and the same template, on all rows (without"
                    " --limit), and compare again",
                    cases=[
                        self.case_of_command(one.command, one.command.text),
                        Case(other.command.text, file=path, line=other.command.line),
                    ],
                )


def _result_files_beside(path: Path) -> Iterator[CommandFile]:
    """Results files of the same folder, or of the folders beside it that a harness makes for models; each pair once."""
    places = _files_matching(path.parent, "*.json")
    for up, pattern in ((1, "*/*results*.json"), (2, "*/*/*results*.json")):
        folders = path.absolute().parents
        if len(folders) > up + 1 and _is_folder_of_a_model(folders[0]):
            places += _files_matching(folders[up], pattern)
    own = path.resolve()
    others: dict[Path, Path] = {}
    for file in places:
        others.setdefault(file.resolve(), file)
    for resolved, file in sorted(others.items())[:MAX_FILES]:
        if resolved > own and is_lm_eval_or_lighteval_results(file):
            try:
                yield read_command_file(file)
            except DataError:
                continue  # who judges that file says what is wrong with it


def _is_folder_of_a_model(folder: Path) -> bool:
    """Is it a folder that a harness makes for a model: `org__name` (lm_eval), or below `results` (lighteval)?

    Other folders beside a file of results are those of other projects.
    """
    names = [one.name for one in (folder, *folder.parents[:2])]
    return "__" in folder.name or any(name.endswith("results") for name in names)


def _files_matching(folder: Path, pattern: str) -> list[Path]:
    """The files below a folder that a pattern fits; none where a folder vanishes meanwhile or can't be read."""
    try:
        return list(itertools.islice(folder.glob(pattern), MAX_FILES))
    except OSError:
        return []


def _command_files_beside(path: Path) -> Iterator[CommandFile]:
    """Other files of commands in the folder of one; each pair once."""
    try:
        entries = sorted(itertools.islice(path.parent.iterdir(), MAX_ENTRIES))
    except OSError:
        return
    jobs = [file for file in entries if file.suffix != ".json" and is_command_file(file)]
    own = path.resolve()
    for file in jobs[:MAX_FILES]:
        if file.resolve() > own:
            try:
                yield read_command_file(file)
            except DataError:
                continue  # who judges that file says what is wrong with it


def _share_a_task_on_two_models(one: HarnessRun, other: HarnessRun) -> bool:
    """Do two runs share a task, and ask two models, as far as plain words say?"""
    is_plain = "$" not in " ".join(
        _options_that_change_scores(one) + _options_that_change_scores(other)
    )
    return (
        is_plain
        and bool(_task_names(one) & _task_names(other))
        and _model_arguments(one) != _model_arguments(other)
    )


def _options_that_change_scores(run: HarnessRun) -> tuple[str, ...]:
    """The options of a run that change what is measured, or how."""
    names = (("--tasks", "-t"), ("--num_fewshot", "-f"), ("--limit", "-L"))
    return tuple(last_option(run.options, *spellings) or "" for spellings in names)


def _task_names(run: HarnessRun) -> frozenset[str]:
    """The tasks of a run."""
    return frozenset((last_option(run.options, "--tasks", "-t") or "").split(","))


def _model_arguments(run: HarnessRun) -> frozenset[str]:
    """The arguments that say which model is asked."""
    parts = [
        part.strip(" '\"")
        for part in run.model_with_arguments_as_written.split(",")
        if part.strip()
    ]
    weights = [part for part in parts if part.partition("=")[0].strip() in WEIGHT_ARGUMENTS]
    return frozenset(weights or parts)


class HarnessSetup(NamedTuple):
    """How a run of a harness asks: examples, rows, templates."""

    shots: Mapping[str, str]
    """By task; empty for a command, which has one number for all its tasks"""
    shots_of_all: str | None
    limit: str | None
    has_template: bool
    says_template: bool


def _setup_of_run(run: HarnessRun, path: str) -> HarnessSetup:
    """The setup of a run: how it asks, by its command or by its results."""
    is_results = is_lm_eval_or_lighteval_results(Path(path))
    by_task = few_shot_count_by_task(Path(path)) if is_results else {}
    return HarnessSetup(
        {task: str(count) for task, count in by_task.items()},
        last_option(run.options, "--num_fewshot", "-f"),
        last_option(run.options, "--limit", "-L"),
        run.uses_template,
        run.is_template_known,
    )


def _setup_differences(
    one: HarnessSetup, other: HarnessSetup, tasks: frozenset[str]
) -> Iterator[str]:
    """The differences of two setups in words, for the tasks that both measure."""
    yield from _few_shot_count_differences(one, other, tasks)
    if one.limit != other.limit:
        first, second = ("all" if value is None else value for value in (one.limit, other.limit))
        yield f"rows: {first} and {second}"
    says_both = one.says_template and other.says_template
    if says_both and one.has_template != other.has_template:
        states = ("on" if setup.has_template else "off" for setup in (one, other))
        yield f"the chat template {' and '.join(states)}"


def _few_shot_count_differences(
    one: HarnessSetup, other: HarnessSetup, tasks: frozenset[str]
) -> Iterator[str]:
    """The numbers of examples that differ; of results each task has its own."""
    if one.shots and other.shots:
        yield from _few_shot_count_differences_by_task(one.shots, other.shots, tasks)
        return
    numbers = (one.shots_of_all, other.shots_of_all)
    if numbers[0] == numbers[1]:
        return
    # `--num_fewshot 0` only says aloud what most tasks do by themselves.
    is_said_alone = {None, "0"} == set(numbers)
    if is_said_alone and all(NO_EXAMPLES.fullmatch(task) for task in tasks):
        return
    first, second = ("the default of the task" if value is None else value for value in numbers)
    yield f"few-shot examples: {first} and {second}"


def _few_shot_count_differences_by_task(
    one: Mapping[str, str], other: Mapping[str, str], tasks: frozenset[str]
) -> Iterator[str]:
    """The tasks whose numbers of examples differ, the first of them by name."""
    differing = [
        f"{task} {one[task]} and {other[task]}"
        for task in sorted(tasks & one.keys() & other.keys())
        if one[task] != other[task]
    ]
    if differing:
        more = len(differing) - SHOWN_TASKS
        shown = ", ".join(differing[:SHOWN_TASKS])
        yield f"few-shot examples {shown}{f', and {more} more tasks' if more > 0 else ''}"
