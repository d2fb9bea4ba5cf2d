"""Megatron-LM computes positions with another base than the weights were trained with.

## What it does
Compares `--rotary-base` (10,000 by default) of Megatron-LM's training commands with the base of the published model
whose tokenizer or checkpoint the command names (Llama 3, Qwen2.5, Qwen3, Mixtral, Code Llama). It looks only at
trainings that start from weights (`--finetune`, `--pretrained-checkpoint`, or a `--load` that differs from `--save`)
and have rotary positions. It skips `--use-checkpoint-args`, which takes the base from the checkpoint.

## Why it is bad
The weights load without an error, and the loss begins a little too high and falls. The model learns to live with wrong
angles; once it is converted and served with its own base, its answers are worse, above all long ones.

## Example
```bash
torchrun --nproc_per_node 8 pretrain_gpt.py --finetune --load ckpt/llama3-8b --save ckpt/sft --num-layers 32 \\
  --position-embedding-type rope --micro-batch-size 1 --train-iters 2000 --lr 1e-5 \\
  --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-8B
```

## Use instead
```bash
torchrun --nproc_per_node 8 pretrain_gpt.py --finetune --load ckpt/llama3-8b --save ckpt/sft --num-layers 32 \\
  --position-embedding-type rope --rotary-base 500000 --micro-batch-size 1 --train-iters 2000 --lr 1e-5 \\
  --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-8B
```

## Fix safety
The training changes. The base is `rope_theta` in the model's config.json.

## References
- Megatron-LM, megatron/training/arguments.py (`--rotary-base`, 10000 by default); config.json of the models
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import parse_setting_number
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option
from truetune.settings.stacks.read_megatron_commands import megatron_options

DEFAULT_BASE = 10_000
# `rope_theta` of config.json on the hub.
BASE_OF_MODELS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"llama-?3(?![0-9])", re.I), 500_000),
    (re.compile(r"qwen-?2(?:\.5)?-?(?:instruct|math|coder)?-?\d", re.I), 1_000_000),
    (re.compile(r"qwen-?3-\d+(?:\.\d+)?b(?!.*2507)", re.I), 1_000_000),
    (re.compile(r"mixtral-8x(?:7|22)b|mistral-7b(?:-instruct)?-v0\.[23]", re.I), 1_000_000),
    (re.compile(r"codellama|code-llama", re.I), 1_000_000),
)
OTHER_BASE = re.compile(r"math|coder|-1m|vl", re.I)
"""In names of releases whose base differs from the rest of their family"""
ROTARY = ("--use-rotary-position-embeddings",)


class StartedTraining(NamedTuple):
    """A training by Megatron-LM that starts from weights whose model is known."""

    command: ShellCommand
    model: str
    base: int
    """Of the published weights"""
    written: str | None
    """The option's value"""


class RotaryBaseOfAnotherModel(CommandRule):
    code = "CMD249"
    fault = Fault.MODEL_USED_WITH_OTHER_SETTINGS
    symptoms = ("good-here-bad-there", "garbage-output")
    severity = "warning"
    what = "trainings by Megatron-LM from published weights"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[StartedTraining]:
        """The trainings with rotary positions that start from the weights of a known model."""
        for command in file.commands:
            options = megatron_options(command)
            if options is None or last_option(options, "--use-checkpoint-args") is not None:
                continue
            is_rotary = last_option(options, "--position-embedding-type") == "rope" or any(
                last_option(options, one) is not None for one in ROTARY
            )
            if not is_rotary or not starts_from_weights(options):
                continue
            for option in ("--tokenizer-model", "--load", "--pretrained-checkpoint"):
                model = last_option(options, option) or ""
                base = _published_base(model)
                if base is not None:
                    written = last_option(options, "--rotary-base")
                    yield StartedTraining(command, model, base, written)
                    break

    def findings(self) -> Iterator[Finding]:
        for training in self.examined_places(self.subject):
            set_to = parse_setting_number(training.written or DEFAULT_BASE)
            if set_to is None or set_to == training.base:
                continue
            how = (
                f"--rotary-base {training.written}"
                if training.written
                else "--rotary-base, by default 10,000,"
            )
            yield self.finding(
                f"{how} is not the base of {training.model}, which is {training.base:,}: positions are computed with"
                " other angles than in its training",
                f"set --rotary-base {training.base}",
                cases=[self.case_of_command(training.command, training.command.text)],
            )


def starts_from_weights(options: tuple[str, ...]) -> bool:
    """Does a training of Megatron-LM start from weights of another run?"""
    load, save = last_option(options, "--load"), last_option(options, "--save")
    return (
        last_option(options, "--finetune") is not None
        or last_option(options, "--pretrained-checkpoint") is not None
        or (load is not None and load != save)
    )


def _published_base(model: str) -> int | None:
    """The base of a published model by its name; None where the name tells none, or one that differs."""
    name = model.rstrip("/").rpartition("/")[2]
    if "$" in model or OTHER_BASE.search(name):
        return None
    return next((base for pattern, base in BASE_OF_MODELS if pattern.search(name)), None)
