"""Two runs of an evaluation harness measure two models in two ways: other examples, rows or templates.

## What it does
Compares the commands that start lm_eval in one file, and the results files of lm_eval and lighteval of one folder: two
that run the same task for two models, with another number of few-shot examples (`--num_fewshot`), on all rows and on a
part (`--limit`, `max_samples`), or with and without the chat template. Silent for one model that is measured in several
ways, and where an option is a variable.

## Why it is bad
The difference of the two scores is that of the two measurements. Five examples or none move a score by ten points, the
template by as much, and 200 of 14,042 rows leave an error of seven points: a tuned model looks worse than its base, or
better, whatever it learned.

## Example
```bash
lm_eval --model_args pretrained=org/base-8b --tasks mmlu --num_fewshot 5 --output_path out/base
lm_eval --model_args pretrained=out/tuned --tasks mmlu --num_fewshot 0 --limit 200 --output_path out/tuned
```

## Use instead
```bash
lm_eval --model_args pretrained=org/base-8b --tasks mmlu --num_fewshot 5 --output_path out/base
lm_eval --model_args pretrained=out/tuned --tasks mmlu --num_fewshot 5 --output_path out/tuned
```

## Fix safety
There is no automatic fix: measure both in the same way, with all rows, and compare again.

## References
- EleutherAI/lm-evaluation-harness docs/interface.md (`--limit`: for testing alone), huggingface/lighteval#82
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.commands.harness_run_without_chat_template import HarnessRun
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import CommandRule
from truetune.errors import DataError
from truetune.parsing.harness_results import is_harness_results
from truetune.parsing.shell_commands import CommandFile, last_option, read_commands

STARTS = (("lm_eval",), ("lm-eval",), ("-m", "lm_eval"), ("lighteval",))
OTHER_MODELS = (
    "tokenizer",
    "batch_size",
    "dtype",
    "trust_remote_code",
    "parallelize",
    "max_length",
)
"""Arguments of a model that say nothing of which one it is"""
MAX_FILES = 40
"""Results files beside one that are read"""


class HarnessRunsNotComparable(CommandRule):
    code = "CMD029"
    severity = "warning"
    what = "runs of lm_eval and lighteval"

    @staticmethod
    def places(file: CommandFile) -> Iterator[HarnessRun]:
        return _harness_runs(file)

    def findings(self) -> Iterator[Finding]:
        own = list(_harness_runs(self.subject))
        pairs = [(one, other, self.subject.path) for one, other in itertools.combinations(own, 2)]
        if is_harness_results(Path(self.subject.path)):
            pairs += [
                (one, other, file.path)
                for file in _results_beside(Path(self.subject.path))
                for other in _harness_runs(file)
                for one in own
            ]
        for one, other, path in pairs:
            differences = "; ".join(_setup_differences(one, other))
            if differences and _measure_one_task(one, other):
                yield self.finding(
                    f"two models are measured in two ways, and their scores can't be compared: {differences}",
                    "measure both with the same --num_fewshot and the same template, on all rows (no --limit), and"
                    " compare again",
                    cases=[
                        self.case(one.command, one.command.text),
                        Case(other.command.text, file=path, line=other.command.line),
                    ],
                )


def _harness_runs(file: CommandFile) -> Iterator[HarnessRun]:
    """The commands that start a harness with a task."""
    for command in file.commands:
        for words in STARTS:
            options = command.behind(*words)
            if options is not None and last_option(options, "--tasks", "-t") is not None:
                yield HarnessRun(command, options, file.saved_from)
                break


def _results_beside(path: Path) -> Iterator[CommandFile]:
    """Results files of the same folder, or of the folders beside it that a harness makes for models; each pair once."""
    places = [*path.parent.glob("*.json")]
    places += [
        file
        for up, pattern in ((1, "*/*results*.json"), (2, "*/*/*results*.json"))
        if len(path.absolute().parents) > up + 1
        for file in itertools.islice(path.absolute().parents[up].glob(pattern), MAX_FILES)
    ]
    own = path.resolve()
    others: dict[Path, Path] = {}
    for file in places:
        others.setdefault(file.resolve(), file)
    for resolved, file in sorted(others.items())[:MAX_FILES]:
        if resolved > own and is_harness_results(file):
            try:
                yield read_commands(file)
            except DataError:
                continue  # who judges that file says what is wrong with it


def _measure_one_task(one: HarnessRun, other: HarnessRun) -> bool:
    """Do two runs share a task, and ask two models, as far as plain words say?"""
    is_plain = "$" not in " ".join(_measuring_options(one) + _measuring_options(other))
    return (
        is_plain
        and bool(_tasks_of(one) & _tasks_of(other))
        and _model_arguments(one) != _model_arguments(other)
    )


def _measuring_options(run: HarnessRun) -> tuple[str, ...]:
    """The options that make a difference, and what is measured."""
    names = ("--tasks", "--num_fewshot", "--limit")
    return tuple(last_option(run.options, name) or "" for name in names)


def _tasks_of(run: HarnessRun) -> frozenset[str]:
    """The tasks of a run."""
    return frozenset((last_option(run.options, "--tasks", "-t") or "").split(","))


def _model_arguments(run: HarnessRun) -> frozenset[str]:
    """The arguments that say which model is asked."""
    parts = run.model.split(",")
    return frozenset(one for one in parts if one.partition("=")[0].strip() not in OTHER_MODELS)


def _setup_differences(one: HarnessRun, other: HarnessRun) -> Iterator[str]:
    """What two runs measure in two ways."""
    for name, what, missing in (
        ("--num_fewshot", "few-shot examples", "the default of the task"),
        ("--limit", "rows", "all"),
    ):
        values = [last_option(run.options, name) for run in (one, other)]
        if values[0] != values[1]:
            first, second = (missing if value is None else value for value in values)
            yield f"{what} {first} and {second}"
    templates = [run.has_template for run in (one, other)]
    if templates[0] != templates[1]:
        yield f"the chat template {' and '.join('on' if on else 'off' for on in templates)}"
