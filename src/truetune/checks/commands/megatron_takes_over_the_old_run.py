"""A fine-tuning by Megatron-LM takes over the steps and the learning rate of the run that it starts from.

## What it does
Finds Megatron-LM's training commands that load the checkpoint of another run (`--load` differs from `--save`) and give
neither `--finetune` nor `--no-load-optim` nor `--override-opt_param-scheduler`.

## Why it is bad
Without `--finetune`, Megatron takes over the iteration, the optimizer and the schedule of the checkpoint. A run of
1,200 iterations from a checkpoint at iteration 100,000 ends at once, or trains at the lowest learning rate, on rows
from the middle of the data.

## Example
```bash
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 28 --micro-batch-size 1 --train-iters 1200 --lr 1e-5 \\
  --load checkpoints/base --save checkpoints/law --data-path data/law_text_document
```

## Use instead
```bash
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 28 --micro-batch-size 1 --train-iters 1200 --lr 1e-5 \\
  --load checkpoints/base --finetune --save checkpoints/law --data-path data/law_text_document
```

## Fix safety
The run starts at iteration 0 with a fresh optimizer. Leave it out if you continue the same run in another folder.

## References
- Megatron-LM, megatron/training/arguments.py (`--finetune`: "Load model for finetuning. Do not load optimizer or rng
  state from checkpoint and set iteration to 0."); NVIDIA/Megatron-LM#887
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option
from truetune.settings.stacks.read_megatron_commands import megatron_options

NEW_RUN = (
    "--finetune",
    "--no-load-optim",
    "--pretrained-checkpoint",
    "--override-opt-param-scheduler",
    "--override-opt_param-scheduler",
    "--reset-iterations",
)
"""Options that begin a new run, or a new schedule"""


class MegatronTakesOverTheOldRun(CommandRule):
    code = "CMD250"
    fault = Fault.SCHEDULE_LENGTH_OR_DIRECTION_WRONG
    symptoms = ("nothing-is-learned", "loss-does-not-fall")
    severity = "warning"
    what = "trainings by Megatron-LM from a checkpoint"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[tuple[ShellCommand, tuple[str, ...]]]:
        """The trainings by Megatron-LM that load a checkpoint, with their options."""
        for command in file.commands:
            options = megatron_options(command)
            if options is not None and last_option(options, "--load"):
                yield command, options

    def findings(self) -> Iterator[Finding]:
        for command, options in self.examined_places(self.subject):
            load, save = last_option(options, "--load") or "", last_option(options, "--save")
            is_open = any(word.startswith("$") for word in options)
            begins_anew = any(last_option(options, one) is not None for one in NEW_RUN)
            if not save or load.rstrip("/") == save.rstrip("/") or begins_anew or is_open:
                continue
            yield self.finding(
                f"without --finetune, the run takes over the iteration, the optimizer and the learning rate of {load}",
                "add --finetune",
                cases=[self.case_of_command(command, f"--load {load}")],
            )
