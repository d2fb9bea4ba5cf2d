"""A command evaluates the output of another run than the one that the project trains.

## What it does
Compares the models that commands evaluate, serve, merge or convert (`--model`, `--checkpoint`, `pretrained=`, `peft=`)
with the output of the project's training. It fires if a folder is next to the training's output (`outputs/run1` next to
`outputs/run3`), no training of the project writes it, and no command uses the training's output. It is a warning if the
results are named after the trained run or the folder is a checkpoint, and info otherwise. It skips files and results
whose name says that they are about an older run.

## Why it is bad
The scores are those of the older run. The new training seems to have no effect, whatever its loss was.

## Example
```bash
trl sft --model_name_or_path org/base-1b --dataset_name rows --max_length 2048 --output_dir outputs/run3
python evaluate.py --model outputs/run1/checkpoint-50 --output results/run3.json
```

## Use instead
```bash
trl sft --model_name_or_path org/base-1b --dataset_name rows --max_length 2048 --output_dir outputs/run3
python evaluate.py --model outputs/run3 --output results/run3.json
```

## Fix safety
There is no automatic fix: an older run may be evaluated on purpose.

## References
- Transformers documentation, "Trainer", `output_dir` and checkpoints
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from truetune.checks.commands.evidence.models_used_by_commands import (
    only_training_with_unused_output,
    output_paths,
    training_started_by_command,
)
from truetune.checks.faults import Fault
from truetune.checks.find_servers_with_base_and_adapter import shell_commands_of_project
from truetune.checks.find_what_scripts_train_and_where import (
    TrainedByScripts,
    canonical_folder_name,
)
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option

MODEL_OPTIONS = (
    "--model",
    "--model_name_or_path",
    "--model_path",
    "--model_dir",
    "--checkpoint",
    "--checkpoint_path",
    "--ckpt",
    "--adapter",
    "--adapter_path",
    "--adapter_name_or_path",
    "--lora",
    "--lora_path",
    "--peft_model",
)
MODEL_ARGUMENT = re.compile(r"(?:^|,)(?:pretrained|peft|delta)=([^,]+)")
CHECKPOINT = re.compile(r"/checkpoint-\d+$")
OLDER = re.compile(
    r"\bold|older|previous|prev\b|baseline|compare|vs_|_vs|before|first|regress", re.I
)
"""Signs that an older run is meant"""


class FolderUse(NamedTuple):
    """A command that uses a folder as a model."""

    command: ShellCommand
    folder: str


class SiblingRun(NamedTuple):
    """A run that lies beside the trained one."""

    folder: str
    trained_name: str
    """How the trained run is called in the same folder"""


class EvaluatesAnotherRun(CommandRule):
    code = "CMD096"
    fault = Fault.WRONG_MODEL_EVALUATED
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    what = "commands that use a local folder as a model"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[FolderUse]:
        """The places that the rule looks at: the commands that use a local folder as a model."""
        for command in file.commands:
            if training_started_by_command(command, Path(file.path).parent) is not None:
                continue
            for folder in _model_folders_used(command):
                yield FolderUse(command, canonical_folder_name(folder))

    def findings(self) -> Iterator[Finding]:
        path = Path(self.subject.path)
        used = [
            one for one in self.examined_places(self.subject) if not OLDER.search(one.command.text)
        ]
        if not used or OLDER.search(path.name):
            return
        trained = only_training_with_unused_output(path)
        if trained is None:
            return
        written = " ".join(map(_output_paths_text, shell_commands_of_project(path)))
        for one in used:
            other = _sibling_run(one.folder, trained.outputs)
            # What a command writes there is of that run on purpose.
            if other is not None and other.folder not in written:
                yield self._finding_on_other_run(one, other, trained)
                return

    def _finding_on_other_run(
        self, evaluated: FolderUse, other: SiblingRun, trained: TrainedByScripts
    ) -> Finding:
        """The finding on a command that uses another run; a warning where that can hardly be meant."""
        is_named_so = other.trained_name in _output_paths_text(evaluated.command)
        is_checkpoint = CHECKPOINT.search(evaluated.folder) is not None
        name = f", saved as {other.trained_name}" if is_named_so else ""
        return self.finding(
            f"{evaluated.folder} belongs to another run: {Path(trained.path).name} writes {trained.best}, which no"
            f" command uses, so the answers are those of {other.folder}{name}",
            f"use {trained.best} instead, or a checkpoint in it",
            severity="warning" if is_named_so or is_checkpoint else "info",
            cases=[self.case_of_command(evaluated.command, evaluated.folder), trained.case],
        )


def _model_folders_used(command: ShellCommand) -> Iterator[str]:
    """The local folders that a command names as a model."""
    for option in MODEL_OPTIONS:
        value = last_option(command.words, option)
        if value and "/" in value and "=" not in value and "$" not in value:
            yield value
    for word in command.words:
        for match in MODEL_ARGUMENT.finditer(word):
            if "/" in match[1] and "$" not in match[1]:
                yield match[1]


def _sibling_run(folder: str, outputs: Iterable[str]) -> SiblingRun | None:
    """The run of a folder, where one of the trained folders stands beside it; else None."""
    parts = PurePosixPath(folder).parts
    for output in outputs:
        trained = PurePosixPath(output).parts
        for depth in range(min(len(trained), len(parts)), 1, -1):
            # One level above the last part of both, and the same down to there.
            is_beside = parts[: depth - 1] == trained[: depth - 1]
            if is_beside and _are_names_of_one_series(parts[depth - 1], trained[depth - 1]):
                return SiblingRun("/".join(parts[:depth]), trained[depth - 1])
    return None


def _are_names_of_one_series(one: str, other: str) -> bool:
    """Are two names of one series: the same but for numbers (`run1`, `run3`; `v2-lora`, `v3-lora`)?"""
    return one != other and re.sub(r"\d+", "#", one) == re.sub(r"\d+", "#", other)


def _output_paths_text(command: ShellCommand) -> str:
    """Where a command writes, as one text."""
    return " ".join(output_paths(command))
