"""A loop over a hyperparameter trains every time with the same value.

## What it does
Finds loops in shell scripts over a hyperparameter (`for LR in 1e-5 2e-5`) in which a training command has an option for
that hyperparameter with a fixed value, while the loop's variable only names the output folder, the run or the log.

## Why it is bad
All runs are the same, up to the seed, and have names that say otherwise. The comparison shows that the hyperparameter
has no effect.

## Example
```bash
for LR in 1e-5 2e-5 5e-5; do
  python sft.py --model_name_or_path Qwen/Qwen2.5-1.5B --learning_rate 2e-5 --output_dir runs/lr_$LR
done
```

## Use instead
```bash
for LR in 1e-5 2e-5 5e-5; do
  python sft.py --model_name_or_path Qwen/Qwen2.5-1.5B --learning_rate $LR --output_dir runs/lr_$LR
done
```

## Fix safety
The runs differ for the first time.

## References
- the Bash manual, "Looping Constructs"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.shell_loops import ShellLoop, find_loops
from truetune.parsing.shell_commands import CommandFile, ShellCommand

OPTIONS_OF_HYPERPARAMETERS: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = (
    (
        re.compile(r"(?:lr|lrs|learning_?rate)", re.I),
        frozenset(("learning_rate", "lr", "actor_learning_rate", "learning-rate")),
    ),
    (re.compile(r"(?:seed|s)", re.I), frozenset(("seed", "data_seed", "random_state"))),
    (
        re.compile(r"(?:r|rank|lora_?r|lora_?rank)", re.I),
        frozenset(("lora_r", "lora_rank", "r", "rank")),
    ),
    (re.compile(r"(?:alpha|lora_?alpha)", re.I), frozenset(("lora_alpha", "alpha"))),
    (
        re.compile(r"beta|kl|kl_?coef", re.I),
        frozenset(("beta", "pref_beta", "rl_beta", "kl_loss_coef", "init_kl_coef")),
    ),
    (
        re.compile(r"(?:ep|epoch|epochs|num_?epochs)", re.I),
        frozenset(("num_train_epochs", "epochs", "num_epochs", "max_epochs", "total_epochs")),
    ),
    (
        re.compile(r"(?:wd|weight_?decay)", re.I),
        frozenset(("weight_decay",)),
    ),
    (
        re.compile(r"(?:bs|bsz|batch|batch_?size)", re.I),
        frozenset(
            ("per_device_train_batch_size", "batch_size", "train_batch_size", "micro_batch_size")
        ),
    ),
    (
        re.compile(r"(?:model|base|base_?model|model_?name)", re.I),
        frozenset(("model", "model_name_or_path", "base_model", "pretrain", "model_name")),
    ),
    (
        re.compile(r"(?:data|dataset|ds|task|train_?file)", re.I),
        frozenset(("dataset", "dataset_name", "data", "data_path", "train_file", "train_files")),
    ),
)
"""Names of a loop's variable -> the options that it is for, by the last part of their names"""
NAMES_OF_RESULTS = re.compile(
    r"out|save|log|run_?name|name|dir|project|experiment|wandb|tag|group|port|report", re.I
)
"""In options that say where a run is kept and what it is called"""


class FixedOption(NamedTuple):
    """An option of a training that does not follow the loop that is named for it."""

    command: ShellCommand
    variable: str
    option: str
    value: str


class LoopVariableUnusedByTraining(CommandRule):
    code = "CMD244"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    what = "loops over a hyperparameter"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ShellLoop]:
        """The loops whose variable is named like a hyperparameter."""
        for loop in find_loops(file):
            if any(_options_for(name) for name in loop.names):
                yield loop

    def findings(self) -> Iterator[Finding]:
        for loop in self.examined_places(self.subject):
            for command in loop.commands:
                fixed = _fixed_option(loop, command)
                if fixed is None:
                    continue
                yield self.finding(
                    f"the loop changes ${fixed.variable}, but {fixed.option} is {fixed.value} in each pass: only the"
                    " names of the runs differ",
                    f"set {fixed.option} to ${fixed.variable}",
                    cases=[self.case_of_command(command, f"{fixed.option} {fixed.value}")],
                )


def _options_for(variable: str) -> frozenset[str]:
    """The options that a loop's variable is for, by its name; empty where the name tells none."""
    return next(
        (names for pattern, names in OPTIONS_OF_HYPERPARAMETERS if pattern.fullmatch(variable)),
        frozenset(),
    )


def _fixed_option(loop: ShellLoop, command: ShellCommand) -> FixedOption | None:
    """The option of a command that ought to follow the loop and does not; None where all is well, or not known."""
    if _may_follow_otherwise(loop, command):
        return None
    options = dict(_options_with_values(command.words))
    for variable in loop.names:
        wanted = _options_for(variable)
        for name, value in options.items():
            last = name.lstrip("-+").replace("-", "_").rpartition(".")[2]
            is_fixed = bool(value) and not set(value) & set("$`")
            if last in wanted and is_fixed and not NAMES_OF_RESULTS.search(last):
                return FixedOption(command, variable, name, value)
    return None


def _may_follow_otherwise(loop: ShellLoop, command: ShellCommand) -> bool:
    """May the command follow the loop by more than the names of its results, or does it not follow it at all?"""
    options = dict(_options_with_values(command.words))
    following = [name for name, value in options.items() if loop.loop_variables_in(value)]
    names_alone = bool(following) and all(NAMES_OF_RESULTS.search(name) for name in following)
    # A value may reach the program as a word without an option, or as a variable of the environment.
    counted = sum(bool(loop.loop_variables_in(word)) for word in _words_but_of_logs(command.words))
    is_elsewhere = counted > len(following) or any(
        loop.loop_variables_in(value) for value in command.variables.values()
    )
    exports = re.search(r"(?m)^\s*export\s", loop.text) is not None
    return not names_alone or is_elsewhere or exports or ".yaml" in command.text


def _words_but_of_logs(words: tuple[str, ...]) -> Iterator[str]:
    """The words without the files that output is sent to (`> log_$LR.txt`, `| tee $LR.log`)."""
    for before, word in pairwise(("", *words)):
        if before not in (">", ">>", ">&", "&>", "tee") and not word.endswith((".log", ".txt")):
            yield word


def _options_with_values(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The options of a command (`--lr 1e-5`, `--lr=1e-5`, `optim.lr=1e-5`) with their values."""
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"[-+\w.]+", name):
            yield name, value
        elif word.startswith("--"):
            following = words[number + 1] if number + 1 < len(words) else ""
            yield word, "" if following.startswith("--") else following
