"""A job trains a model in float16 although the model overflows there.

## What it does
Reads training commands in shell scripts, job files and Dockerfiles for a model family that overflows in float16 (Gemma
2 and 3, T5). It fires for `--fp16` or `--mixed_precision fp16`, or if the named DeepSpeed configuration enables `fp16`.
It does not judge a command with `--bf16` as well, or with a variable instead of a value.

## Why it is bad
The largest float16 number is 65,504, and the activations of these models are larger: gradients become NaN or infinite,
the loss scaler skips step after step, and the loss does not fall.

## Example
```bash
deepspeed --num_gpus 4 run_sft.py --model_name_or_path google/gemma-2-2b-it --learning_rate 1e-5 --fp16
```

## Use instead
```bash
deepspeed --num_gpus 4 run_sft.py --model_name_or_path google/gemma-2-2b-it --learning_rate 1e-5 --bf16
```

## Fix safety
On a GPU without bfloat16 (T4, V100), train in float32 instead.

## References
- huggingface/transformers#4586 (T5), huggingface/transformers#9295 (mT5), deepspeedai/DeepSpeed#697
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.identify_model_by_published_name import family_known_to_overflow_float16
from truetune.checks.rule import CommandRule
from truetune.checks.source.evidence.published_bases_of_folders import overflowing_family_of_folder
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import read_json
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option

MODEL = ("--model_name_or_path", "--model", "--model_name", "--base_model", "--model_id_or_path")
TRAINS = (
    "--learning_rate",
    "--lr",
    "--num_train_epochs",
    "--per_device_train_batch_size",
    "--train_file",
)
"""Options of which a training has one, and a server or an evaluation none"""
# The empty text is a switch that stands alone.
ON = frozenset(("", "1", "true", "yes", "on"))
OFF = frozenset((None, "0", "false", "no", "off", "none"))


class Float16Training(NamedTuple):
    """A command that trains a model in float16."""

    command: ShellCommand
    model: str
    sign: str
    """What says so: `--fp16`, or the DeepSpeed configuration"""


class JobTrainsOverflowingModelInFloat16(CommandRule):
    code = "CMD001"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    symptoms = ("loss-does-not-fall",)
    severity = "warning"
    what = "commands that train in float16"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[Float16Training]:
        """The places that the rule looks at: the commands that train in float16."""
        return _float16_trainings(file)

    def findings(self) -> Iterator[Finding]:
        for training in _float16_trainings(self.subject):
            family = family_known_to_overflow_float16(
                training.model
            ) or overflowing_family_of_folder(Path(self.subject.path), training.model)
            if family is not None:
                yield self.finding(
                    f"{family} overflows in float16, whose largest number is 65,504: gradients become NaN,"
                    " and steps are skipped",
                    "use --bf16 instead of --fp16, and enable bf16 instead of fp16 in a DeepSpeed configuration; on"
                    " a GPU without bfloat16, train in float32",
                    evidence=[f"float16: {training.sign}"],
                    cases=[self.case_of_command(training.command, training.model)],
                )


def _float16_trainings(file: CommandFile) -> Iterator[Float16Training]:
    """The commands that train in float16, with the model that they name."""
    for command in file.commands:
        words = command.words
        model = last_option(words, *MODEL)
        if not model or all(last_option(words, name) is None for name in TRAINS):
            continue
        sign = _float16_option_or_setting(command, Path(file.path).parent)
        # Both switched on is an error of the Trainer itself.
        if sign is not None and _switch_value(words, "--bf16") in OFF:
            yield Float16Training(command, model, sign)


def _float16_option_or_setting(command: ShellCommand, folder: Path) -> str | None:
    """The option or setting by which a command trains in float16; None where there is none."""
    words = command.words
    if _switch_value(words, "--fp16") in ON:
        return "--fp16"
    if last_option(words, "--mixed_precision") == "fp16":
        return "--mixed_precision fp16"
    named = last_option(words, "--deepspeed", "--deepspeed_config", "--deepspeed_config_file")
    return named if named and _deepspeed_file_enables_float16(folder / named) else None


def _switch_value(words: tuple[str, ...], name: str) -> str | None:
    """The value of a switch of the command line, in lower case; "" for one that stands alone, None
    where it is not given.
    """
    value = last_option(words, name)
    return value.lower() if value is not None else None


def _deepspeed_file_enables_float16(path: Path) -> bool:
    """Does a DeepSpeed configuration enable float16? `auto` leaves it to the command."""
    try:
        value = read_json(path, SETTINGS)
    except (OSError, ValueError):
        return False
    # `auto` takes the command's own precision, which was read before.
    half = value.get("fp16") if isinstance(value, dict) else None
    return isinstance(half, dict) and half.get("enabled") is True
