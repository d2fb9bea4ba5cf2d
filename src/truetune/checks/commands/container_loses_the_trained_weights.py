"""A container writes the trained weights into itself, and they are gone when it ends.

## What it does
Finds trainings that are started by `docker run --rm`, a compose file or a Kubernetes manifest and write their output
(`--output_dir`, `--out_dir`, `--save_path`) to an absolute path that no volume covers. In a manifest a volume of the
kind `emptyDir` counts as none. It skips trainings that upload their result (`push_to_hub`, `aws s3`, `gsutil`).

## Why it is bad
The training ends without an error, and the container is removed together with its files: hours of training are lost.

## Example
```bash
docker run --rm --gpus all --ipc=host -v $PWD/data:/data my/trainer \\
  accelerate launch sft.py --model_name_or_path Qwen/Qwen2.5-7B --output_dir /outputs/sft
```

## Use instead
```bash
docker run --rm --gpus all --ipc=host -v $PWD/data:/data -v $PWD/outputs:/outputs my/trainer \\
  accelerate launch sft.py --model_name_or_path Qwen/Qwen2.5-7B --output_dir /outputs/sft
```

## Fix safety
Safe: the folder of the host is written to.

## References
- Docker documentation, "Volumes" and `docker run --rm`; Kubernetes documentation, "Volumes" (`emptyDir`)
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand, docker_run_words, last_option

OUTPUTS = ("--output_dir", "--out_dir", "--save_path", "--output-dir", "--save_dir")
TRAINS = re.compile(r"sft|dpo|grpo|train|finetune|fine_tune|tune|axolotl|openrlhf|swift|trl", re.I)
UPLOADS = re.compile(
    r"push_to_hub|hub_model_id|aws s3|gsutil|rclone|azcopy|huggingface-cli upload|hf upload|gs://|s3://"
)
MOUNT_OPTIONS = ("-v", "--volume", "--mount")
VARIABLE = re.compile(r"\$(?:\w+|\{\w+(?:\[@\])?\})")
TARGET = re.compile(r"(?:target|destination|dst)=([^,]+)")


class TrainingInContainer(NamedTuple):
    """A training that a container runs, with the folder it writes."""

    command: ShellCommand
    words: tuple[str, ...]
    """As written, with the container's own paths"""
    output: str


class ContainerLosesTheTrainedWeights(CommandRule):
    code = "CMD248"
    fault = Fault.TRAINING_RESULT_LOST
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    what = "trainings in a container that is removed at the end"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[TrainingInContainer]:
        """The trainings in containers whose own files are not kept."""
        is_yaml = file.path.endswith((".yaml", ".yml"))
        for command in file.commands:
            if not docker_run_words(command) or not TRAINS.search(command.text):
                continue
            try:
                words = tuple(shlex.split(command.text))
            except ValueError:
                continue
            output = next((value for one in OUTPUTS if (value := last_option(words, one))), "")
            is_removed = is_yaml or "--rm" in words
            if output.startswith("/") and "$" not in output and is_removed:
                yield TrainingInContainer(command, words, output)

    def findings(self) -> Iterator[Finding]:
        for training in self.examined_places(self.subject):
            if UPLOADS.search(self.subject.text) or _is_covered(training):
                continue
            yield self.finding(
                f"the training writes {training.output}, which no volume covers: the weights are removed with the"
                " container",
                f"mount a folder that stays over {training.output}, or a folder above it",
                cases=[self.case_of_command(training.command, training.output)],
            )


def _is_covered(training: TrainingInContainer) -> bool:
    """Does a volume that outlives the container cover the folder?"""
    targets: list[str] = []
    for number, word in enumerate(training.words):
        option, equals, value = word.partition("=")
        if option not in MOUNT_OPTIONS:
            continue
        given = value if equals else "".join(training.words[number + 1 : number + 2])
        match = TARGET.search(given)
        targets.append(match[1] if match else (given.split(":") + [given])[1])
    # A variable may hold any volumes.
    if any(VARIABLE.fullmatch(word) for word in training.words):
        return True
    return any(
        target.startswith("$") or f"{training.output}/".startswith(target.rstrip("/") + "/")
        for target in targets
    )
