"""A command uses the weights of a training that still runs in the background.

## What it does
Finds trainings in shell scripts that are sent to the background (`... --output_dir out/sft &`) and a later command that
evaluates, serves, merges or trains on from the same folder, without `wait` (or a loop that waits) in between.

## Why it is bad
The shell starts the second command at once. It finds no weights, or those of an earlier run, and reports their scores
as the result of this training.

## Example
```bash
trl sft --model_name_or_path Qwen/Qwen2.5-1.5B --dataset_name trl-lib/Capybara --max_length 2048 --output_dir out/sft &
lm_eval --model hf --model_args pretrained=out/sft --tasks ifeval --apply_chat_template --batch_size 16
```

## Use instead
```bash
trl sft --model_name_or_path Qwen/Qwen2.5-1.5B --dataset_name trl-lib/Capybara --max_length 2048 --output_dir out/sft
lm_eval --model hf --model_args pretrained=out/sft --tasks ifeval --apply_chat_template --batch_size 16
```

## Fix safety
Safe: the second command starts later.

## References
- the Bash manual, "Lists of Commands" (`&`) and `wait`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option

OUTPUTS = ("--output_dir", "--out_dir", "--save_path", "--output-dir", "--save")
MIN_FOLDER = 4
"""Characters of a folder that is looked for in other commands: `out` is a part of many words"""
WAITS = re.compile(r"(?m)^\s*(?:wait\b|while\b|until\b|for\b|sleep\b|fg\b)|\bwait\s+\$|&&")
USES_WEIGHTS = re.compile(
    r"(?:^|[\s/])(?:python3?|accelerate|torchrun|deepspeed|lm_eval|lm-eval|lighteval|vllm|llamafactory-cli|swift"
    r"|axolotl|trl|peft|mergekit-\w+|llama-\w+|tune|litgpt)(?=\s)"
)
"""Programs that read weights; `tail`, `tensorboard` and `ls` look at the folder during the run"""
WATCHES = re.compile(r"tensorboard|watch|monitor|plot|sync|upload", re.I)


class BackgroundTraining(NamedTuple):
    """A command in the background that writes a folder."""

    command: ShellCommand
    folder: str
    last_line: int


class EvaluationStartsBeforeTrainingEnds(CommandRule):
    code = "CMD246"
    fault = Fault.PIPELINE_USES_WRONG_MODEL
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "error"
    what = "commands in the background that write a folder"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[BackgroundTraining]:
        """The commands that run in the background and are told a folder to write."""
        lines = file.text.splitlines()
        for command in file.commands:
            folder = next(
                (value for one in OUTPUTS if (value := last_option(command.words, one))), ""
            )
            if len(folder) < MIN_FOLDER:
                continue
            last = command.line
            while last < len(lines) and lines[last - 1].endswith("\\"):
                last += 1
            end = lines[last - 1].partition(" #")[0].rstrip() if last <= len(lines) else ""
            if end.endswith("&") and not end.endswith("&&"):
                yield BackgroundTraining(command, folder.rstrip("/"), last)

    def findings(self) -> Iterator[Finding]:
        lines = self.subject.text.splitlines()
        for training in self.examined_places(self.subject):
            for later in self.subject.commands:
                between = "\n".join(lines[training.last_line : later.line - 1])
                if later.line <= training.last_line or WAITS.search(between):
                    continue
                if not _reads_folder(later, training.folder):
                    continue
                yield self.finding(
                    f"this command uses {training.folder}, which a training in the background (line"
                    f" {training.command.line}) has only begun to write",
                    "put `wait` before this command, or remove the & after the training",
                    cases=[self.case_of_command(later, later.text)],
                )
                break


def _reads_folder(command: ShellCommand, folder: str) -> bool:
    """Does a program that reads weights name the folder, other than as its own output?"""
    text = " ".join(command.words)
    if not USES_WEIGHTS.search(text + " ") or WATCHES.search(text):
        return False
    written = next((value for one in OUTPUTS if (value := last_option(command.words, one))), "")
    pattern = re.compile(rf"(?<![\w/-]){re.escape(folder)}(?![\w-])")
    return any(
        pattern.search(word) for word in command.words if word.rstrip("/") != written.rstrip("/")
    )
