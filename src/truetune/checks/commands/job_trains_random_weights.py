"""A fine-tuning job starts from random weights, because it names a config but no model.

## What it does
Reads commands in shell scripts, job files and Dockerfiles that start a transformers training script (`run_clm.py`,
`run_mlm.py`, `run_fim.py` ..., also with `_no_trainer`) with `--config_name` or `--model_type` and without
`--model_name_or_path`. It fires if the job shows that it fine-tunes: the config is that of a chat model, or the file
name, output folder or comments mention fine-tuning. It skips jobs that say that they pretrain or train from scratch,
jobs with `--config_overrides`, and jobs that resume from a checkpoint. It also fires for Megatron-LM's commands with
`--finetune`, `--no-load-optim`, `--no-load-rng` or `--exit-on-missing-checkpoint` and without `--load`.

## Why it is bad
With only a config, these scripts create a model with random weights ("Training new model from scratch", one line in the
log). The run ends normally and its loss falls, but the saved model contains nothing of the pretrained one.

## Example
```bash
python run_clm.py --config_name Qwen/Qwen2.5-0.5B --tokenizer_name Qwen/Qwen2.5-0.5B --train_file train.txt \
  --do_train --num_train_epochs 3 --output_dir out/qwen-finetuned
```

## Use instead
```bash
python run_clm.py --model_name_or_path Qwen/Qwen2.5-0.5B --train_file train.txt \
  --do_train --num_train_epochs 3 --output_dir out/qwen-finetuned
```

## Fix safety
There is no automatic fix: to train from scratch on purpose, ignore this rule.

## References
- huggingface/transformers `examples/pytorch/language-modeling/run_clm.py`: "Training new model from scratch"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.source.evidence.random_weights_fine_tuned import (
    CHAT_MODEL,
    fine_tuning_word_in_text,
    says_trained_from_scratch,
)
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option
from truetune.settings.stacks.read_megatron_commands import megatron_options

SCRIPT = re.compile(r"(^|/)run_(clm|mlm|plm|fim|summarization|translation)(_\w+)?\.py$")
"""Example scripts of transformers that make a new model where they are given a config alone"""
SIGNS_OF_MEGATRON = (
    "--finetune",
    "--no-load-optim",
    "--no-load-rng",
    "--exit-on-missing-checkpoint",
)
"""Options of Megatron-LM that are about the checkpoint which a training starts from"""
WEIGHTS_OF_MEGATRON = ("--load", "--pretrained-checkpoint", "--non-persistent-ckpt-type")
CONTINUES = ("--resume_from_checkpoint", "--config_overrides")


class NewModel(NamedTuple):
    """A command that trains a new model."""

    command: ShellCommand
    option: str
    """`--config_name` or `--model_type`"""
    source: str


class JobTrainsRandomWeights(CommandRule):
    code = "CMD040"
    fault = Fault.WEIGHTS_ARE_RANDOM
    symptoms = ("garbage-output", "loss-does-not-fall")
    severity = "error"
    what = "commands that train a new model by a script of transformers"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[NewModel]:
        """The places that the rule looks at: the commands that train a new model by a script of transformers."""
        return _trainings_of_new_models(file)

    def findings(self) -> Iterator[Finding]:
        file = self.subject
        trainings = list(_trainings_of_new_models(file))
        for new in trainings:
            if new.option in SIGNS_OF_MEGATRON:
                yield self._finding_on_megatron(new)
        # Scripts of Megatron-LM are called `pretrain_gpt.py` whatever they do; their options say it.
        if says_trained_from_scratch(file.path, file.text):
            return
        for new in trainings:
            if new.option in SIGNS_OF_MEGATRON:
                continue
            sign = _evidence_of_fine_tuning(file, new)
            if sign is not None:
                name = new.source if new.option == "--config_name" else "the pretrained model"
                yield self.finding(
                    f"{new.option} {new.source} is given without --model_name_or_path: training starts from random"
                    " weights",
                    f"use --model_name_or_path {name} instead of {new.option}",
                    evidence=[f"this looks like fine-tuning: {sign}"],
                    cases=[self.case_of_command(new.command, f"{new.option} {new.source}")],
                )

    def _finding_on_megatron(self, new: NewModel) -> Finding:
        """The finding on a training by Megatron-LM that wants weights and names none."""
        return self.finding(
            f"{new.option} is given without --load: Megatron-LM has no weights to start from, and trains random ones",
            "add --load FOLDER, and --exit-on-missing-checkpoint",
            cases=[self.case_of_command(new.command, new.option)],
        )


def _trainings_of_new_models(file: CommandFile) -> Iterator[NewModel]:
    """The commands of a file that train a model of which they name no weights."""
    for command in file.commands:
        words = command.words
        options = megatron_options(command)
        if options is not None:
            yield from _training_of_megatron_without_weights(command, options)
            continue
        if not any(SCRIPT.search(word) for word in words):
            continue
        # A variable may hold any options.
        is_open = any(word.startswith("$") for word in words)
        if is_open or last_option(words, "--model_name_or_path", *CONTINUES) is not None:
            continue
        for option in ("--config_name", "--model_type"):
            source = last_option(words, option)
            if source and "$" not in source:
                yield NewModel(command, option, source)
                break


def _training_of_megatron_without_weights(
    command: ShellCommand, options: tuple[str, ...]
) -> Iterator[NewModel]:
    """The command, if it has an option that is about weights to start from, and names none."""
    is_open = any(word.startswith("$") for word in options)
    names_weights = any(last_option(options, one) is not None for one in WEIGHTS_OF_MEGATRON)
    if is_open or names_weights:
        return
    sign = next((one for one in SIGNS_OF_MEGATRON if last_option(options, one) is not None), None)
    if sign is not None:
        yield NewModel(command, sign, "")


def _evidence_of_fine_tuning(file: CommandFile, new: NewModel) -> str | None:
    """The sign that a command fine-tunes, in words: a chat model, or what the file says; None where
    there is none.
    """
    if CHAT_MODEL.search(new.source.rpartition("/")[2]):
        return f"{new.source} is a chat model"
    return fine_tuning_word_in_text(file.path, file.text)
