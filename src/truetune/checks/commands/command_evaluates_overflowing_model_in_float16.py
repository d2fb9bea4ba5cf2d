"""A command evaluates a model in float16 although the model overflows there.

## What it does
Reads evaluation commands: lm_eval and lighteval with `dtype=float16` (or half) in the model arguments, and scripts with
`--fp16_full_eval`. It warns if the named model belongs to a family that overflows in float16: Gemma 2 and 3, and T5 if
the weights are cast. It does not judge a variable instead of a name.

## Why it is bad
The largest float16 number is 65,504, and the activations of these models are larger: logits and log-likelihoods are
NaN. The loss and the perplexity are then NaN too, and multiple-choice tasks score at chance level, even for the
untouched base model.

## Example
```bash
lm_eval --model hf --model_args pretrained=google/gemma-2-9b,dtype=float16 --tasks hellaswag --batch_size 8
```

## Use instead
```bash
lm_eval --model hf --model_args pretrained=google/gemma-2-9b,dtype=bfloat16 --tasks hellaswag --batch_size 8
```

## Fix safety
On a GPU without bfloat16 (T4, V100) it is slow or fails: use dtype=float32 there.

## References
- huggingface/transformers#36822 (Gemma 3), huggingface/transformers#4586 (T5)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.identify_model_by_published_name import family_known_to_overflow_float16
from truetune.checks.rule import CommandRule
from truetune.checks.source.evidence.published_bases_of_folders import overflowing_family_of_folder
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option

HARNESSES = frozenset(("lm_eval", "lm-eval", "lighteval"))
HARNESS_MODULES = (("-m", "lm_eval"), ("-m", "lighteval"))
ARGUMENT = re.compile(r"(?:^|,)(?P<name>\w+)=(?P<value>[^,]*)")
MODEL_ARGUMENTS = ("pretrained", "model_name", "model", "model_parallel")
FLOAT16 = frozenset(("float16", "half", "fp16", "torch.float16"))
MODEL_OPTIONS = ("--model_name_or_path", "--model_name", "--model", "--model_id")
SWITCH = "--fp16_full_eval"
OFF = frozenset((None, "false", "0", "no"))
KEPT_BY_LOAD = "t5"
"""End of the families whose load in float16 keeps the layers in float32 that overflow"""


class _Float16Evaluation(NamedTuple):
    """A command that evaluates in float16."""

    command: ShellCommand
    model: str
    text: str
    """What in the command says float16"""
    is_cast: bool


class CommandEvaluatesOverflowingModelInFloat16(CommandRule):
    code = "CMD136"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    symptoms = ("odd-metrics",)
    severity = "warning"
    stability = "preview"
    what = "commands that evaluate in float16"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[_Float16Evaluation]:
        """The places that the rule looks at: the commands that evaluate in float16."""
        for command in file.commands:
            float16_evaluation = _float16_run_of_harness(command) or _float16_cast_in_script(
                command
            )
            if float16_evaluation is not None:
                yield float16_evaluation

    def findings(self) -> Iterator[Finding]:
        for float16_evaluation in self.examined_places(self.subject):
            family = family_known_to_overflow_float16(
                float16_evaluation.model
            ) or overflowing_family_of_folder(Path(self.subject.path), float16_evaluation.model)
            if family is None or (family.endswith(KEPT_BY_LOAD) and not float16_evaluation.is_cast):
                continue
            fix = (
                "use --bf16_full_eval instead of --fp16_full_eval"
                if float16_evaluation.is_cast
                else ("set dtype=bfloat16 in the model arguments")
            )
            yield self.finding(
                f"{family} is evaluated in float16, whose largest number is 65,504, but its activations are larger:"
                " logits and losses become NaN",
                fix,
                cases=[self.case_of_command(float16_evaluation.command, float16_evaluation.text)],
            )


def _float16_run_of_harness(command: ShellCommand) -> _Float16Evaluation | None:
    """A run of an evaluation harness that loads the weights in float16; None for any other command."""
    if not _starts_harness(command):
        return None
    model_args_option = last_option(command.words, "--model_args", "-a")
    # lighteval takes the arguments of the model as a word of its own.
    for text in command.words if model_args_option is None else (model_args_option,):
        arguments = {one["name"]: one["value"] for one in ARGUMENT.finditer(text)}
        model = next((arguments[name] for name in MODEL_ARGUMENTS if name in arguments), "")
        dtype = arguments.get("dtype", arguments.get("torch_dtype", ""))
        if model and dtype in FLOAT16:
            return _Float16Evaluation(command, model, f"dtype={dtype}", is_cast=False)
    return None


def _starts_harness(command: ShellCommand) -> bool:
    """Does the command start lm_eval or lighteval?"""
    program = command.words[0].rpartition("/")[2]
    is_module = any(command.words_following(*words) is not None for words in HARNESS_MODULES)
    return program in HARNESSES or is_module


def _float16_cast_in_script(command: ShellCommand) -> _Float16Evaluation | None:
    """A script that casts the weights to float16 for its evaluation, with its model; None for any
    other command.
    """
    value = last_option(command.words, SWITCH)
    if (value.lower() if value is not None else None) in OFF:
        return None
    model = last_option(command.words, *MODEL_OPTIONS)
    return _Float16Evaluation(command, model, SWITCH, is_cast=True) if model else None
