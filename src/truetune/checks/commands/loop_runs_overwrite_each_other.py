"""Each pass of a loop, or each job of an array, trains into the same folder.

## What it does
Finds loops in shell scripts in which a training's options change from pass to pass (a seed, a rate, a data set), while
its output folder (`--output_dir`, `--out_dir`, `--save_path`) stays the same. It skips loops in which another command
uses the folder, such as an evaluation or a copy after each pass. The jobs of a Slurm array (`#SBATCH --array`) are
judged as the passes of a loop over `$SLURM_ARRAY_TASK_ID`.

## Why it is bad
Only the last run is left. The Trainer may even go on from the checkpoint of the pass before, so that later runs train
nothing.

## Example
```bash
for seed in 1 2 3; do
  python train.py --model Qwen/Qwen2.5-0.5B --seed $seed --output_dir out/model
done
```

## Use instead
```bash
for seed in 1 2 3; do
  python train.py --model Qwen/Qwen2.5-0.5B --seed $seed --output_dir out/model-$seed
done
```

## Fix safety
The results take more disk space.

## References
- transformers documentation, `TrainingArguments.output_dir`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.shell_loops import ShellLoop, find_loops, values_of_variables
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option

OUTPUTS = (
    "--output_dir",
    "--out_dir",
    "--save_path",
    "--output-path",
    "--checkpoint_dir",
    "--save",
)
TRAINS = re.compile(
    r"\b(?:sft|dpo|grpo|train|finetune|fine_tune|tune|kto|orpo)\w*(?:\.py)?\b|openrlhf|axolotl",
    re.I,
)
"""In commands that train"""
RATE_OF_TRAINING = re.compile(r"--(?:learning_rate|lr|num_train_epochs|epochs|lora_r)\b")
"""Options that a training alone has: with them, its name may stand in the value of any option"""
ELSEWHERE = re.compile(
    r"\b(?:mason\.py|beaker|gantry|sky\s+launch|kubectl|sbatch|bsub|modal\s+run|(?:docker|podman)\s+run|ray\s+job)\b"
)
"""Programs that start each run in a container or on a machine of its own, with folders of its own"""
RATE = re.compile(r"--(?:learning_rate|lr|num_train_epochs|epochs|lora_r|seed|dataset|data\w*)\b")


class TrainingInLoop(NamedTuple):
    """A training that a loop repeats."""

    loop: ShellLoop
    command: ShellCommand
    option: str
    folder: str


class LoopRunsOverwriteEachOther(CommandRule):
    code = "CMD245"
    fault = Fault.OUTPUT_FOLDER_ALREADY_IN_USE
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    what = "trainings that a loop repeats"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[TrainingInLoop]:
        """The trainings inside of loops, with the folder that each writes."""
        for loop in (*find_loops(file), *_jobs_of_array(file)):
            for command in loop.commands:
                option = next((one for one in OUTPUTS if last_option(command.words, one)), None)
                if ELSEWHERE.search(command.text) or loop.has_one_pass:
                    continue
                if option and _is_training(command) and RATE.search(" ".join(command.words)):
                    folder = last_option(command.words, option) or ""
                    yield TrainingInLoop(loop, command, option, folder)

    def findings(self) -> Iterator[Finding]:
        for run in self.examined_places(self.subject):
            words = [word for word in run.command.words if run.loop.loop_variables_in(word)]
            if not words or not run.loop.is_same_in_each_pass(run.folder):
                continue
            if run.folder in " ".join(words) or _is_folder_meant_to_be_shared(run):
                continue
            yield self.finding(
                f"{run.option} is {run.folder} in each pass of the loop: each run overwrites the one before, or resumes"
                " from its checkpoint",
                f"add {words[0]} to {run.option}"
                if words[0].startswith("$")
                else f"let {run.option} differ from pass to pass",
                cases=[self.case_of_command(run.command, f"{run.option} {run.folder}")],
            )


def _is_training(command: ShellCommand) -> bool:
    """Does a command train? An evaluation may name a trained adapter in an option (`--adapters sft_v1,sft_v2`)."""
    if RATE_OF_TRAINING.search(" ".join(command.words)):
        return TRAINS.search(command.text) is not None
    words = command.words
    programs = [
        word
        for before, word in zip(("", *words), words, strict=False)
        if word.endswith(".py") or before in ("-m", "--module") or not before.startswith("--")
    ]
    return TRAINS.search(" ".join(programs)) is not None


def _jobs_of_array(file: CommandFile) -> Iterator[ShellLoop]:
    """A job array of Slurm as a loop over the number of its jobs."""
    if "--array" not in file.requests and "-a" not in file.requests:
        return
    values = values_of_variables(file.text)
    yield ShellLoop(frozenset(("SLURM_ARRAY_TASK_ID",)), 1, file.text, file.commands, values)


def _is_folder_meant_to_be_shared(run: TrainingInLoop) -> bool:
    """Does a run resume from what the folder holds, or another command of the loop use it before the next pass?"""
    if "resume" in run.command.text or "adapter" in run.command.text:
        return True
    others = [one for one in run.loop.commands if one is not run.command]
    return any(_uses_folder(one, run.folder) for one in others)


def _uses_folder(command: ShellCommand, folder: str) -> bool:
    """Does another command of the loop name the folder, or one above it?"""
    name = folder.rstrip("/").rpartition("/")[2]
    return any(
        folder.rstrip("/") in word or (len(name) > 3 and name in word) for word in command.words
    )
