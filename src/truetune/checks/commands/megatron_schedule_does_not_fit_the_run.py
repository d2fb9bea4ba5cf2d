"""The learning rate of a Megatron-LM run falls over another length than that of the run.

## What it does
Compares `--lr-decay-iters` (or `--lr-decay-samples`) of Megatron-LM's training commands with `--train-iters`
(`--train-samples`): it fires below a half and above twice that length, unless the rate is constant.

## Why it is bad
With a decay that is too short, most of the run trains at the lowest learning rate. With one that is too long, often
copied from the pretraining, the rate hardly falls, and the run ends in the middle of its schedule.

## Example
```bash
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --micro-batch-size 2 --train-iters 20000 --lr 2e-5 \\
  --min-lr 2e-6 --lr-decay-style cosine --lr-decay-iters 2000 --load ckpt/base --finetune --save ckpt/out
```

## Use instead
```bash
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --micro-batch-size 2 --train-iters 20000 --lr 2e-5 \\
  --min-lr 2e-6 --lr-decay-style cosine --load ckpt/base --finetune --save ckpt/out
```

## Fix safety
By default the decay is as long as the run.

## References
- Megatron-LM, megatron/training/arguments.py (`--lr-decay-iters`: "If None defaults to `--train-iters`")
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option, parse_digits
from truetune.settings.stacks.read_megatron_commands import megatron_options

# Published recipes set both alike, or 0.8 to 1.1 of the other; at a half or twice they are two lengths.
LOWEST_SHARE, HIGHEST_SHARE = 0.5, 2.0
LENGTHS = (("--lr-decay-iters", "--train-iters"), ("--lr-decay-samples", "--train-samples"))
# Of `WSD` the decay is the end of the run alone, and its length is another option.
OWN_LENGTH = ("constant", "WSD")


class DecayOfRun(NamedTuple):
    """How long the learning rate of a training falls, and how long the training is."""

    command: ShellCommand
    option: str
    decay: int
    run: int


class MegatronScheduleDoesNotFitTheRun(CommandRule):
    code = "CMD251"
    fault = Fault.SCHEDULE_LENGTH_OR_DIRECTION_WRONG
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "warning"
    what = "trainings by Megatron-LM that set the length of their schedule"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[DecayOfRun]:
        """The trainings that set both lengths."""
        for command in file.commands:
            options = megatron_options(command)
            if options is None or last_option(options, "--lr-decay-style") in OWN_LENGTH:
                continue
            for decay_option, run_option in LENGTHS:
                decay = parse_digits(last_option(options, decay_option))
                run = parse_digits(last_option(options, run_option))
                if decay and run:
                    yield DecayOfRun(command, decay_option, decay, run)

    def findings(self) -> Iterator[Finding]:
        for decay_of_run in self.examined_places(self.subject):
            share = decay_of_run.decay / decay_of_run.run
            if LOWEST_SHARE <= share <= HIGHEST_SHARE:
                continue
            effect = (
                f"the last {1 - share:.0%} of the run train at the lowest rate"
                if share < 1
                else f"the run ends after {1 / share:.0%} of its schedule"
            )
            yield self.finding(
                f"the learning rate falls over {decay_of_run.decay:,}, and the run is {decay_of_run.run:,} long:"
                f" {effect}",
                f"set {decay_of_run.option} to {decay_of_run.run}, or remove it",
                cases=[
                    self.case_of_command(
                        decay_of_run.command, f"{decay_of_run.option} {decay_of_run.decay}"
                    )
                ],
            )
