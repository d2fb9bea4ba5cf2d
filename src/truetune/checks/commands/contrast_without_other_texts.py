"""A contrastive training gets one text for each query and nothing to compare it with: its loss is always 0.

## What it does
Reads commands that train with FlagEmbedding. It fires if `--train_group_size` is 1, so that no negative is drawn, and
`--per_device_train_batch_size` is 1 on one process, so that the batch holds no other text either.

## Why it is bad
The softmax over one text is 1. Loss and gradients are exactly 0 at every step, and the saved model is the base model.

## Example
```bash
torchrun --nproc_per_node 1 -m FlagEmbedding.finetune.embedder.encoder_only.base --model_name_or_path BAAI/bge-m3 \\
  --train_data train.jsonl --output_dir out --per_device_train_batch_size 1 --train_group_size 1
```

## Use instead
```bash
torchrun --nproc_per_node 1 -m FlagEmbedding.finetune.embedder.encoder_only.base --model_name_or_path BAAI/bge-m3 \\
  --train_data train.jsonl --output_dir out --per_device_train_batch_size 8 --train_group_size 8
```

## Fix safety
A larger group needs as many negatives in the rows, and takes more memory.

## References
- FlagOpen/FlagEmbedding#823 (loss 0.0 and grad_norm 0.0 at each step), FlagOpen/FlagEmbedding#593
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checks.commands.evidence.options_of_python_modules import (
    module_of_command,
    options_of_command,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand

TRAININGS = (
    "FlagEmbedding.finetune.",
    "FlagEmbedding.baai_general_embedding.finetune.",
    "FlagEmbedding.BGE_M3.",
)


class ContrastWithoutOtherTexts(CommandRule):
    code = "CMD271"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    what = "commands that train with FlagEmbedding"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ShellCommand]:
        """The trainings of a file by FlagEmbedding."""
        return (one for one in file.commands if module_of_command(one).startswith(TRAININGS))

    def findings(self) -> Iterator[Finding]:
        """Findings on trainings with one text a step."""
        for command in self.examined_places(self.subject):
            options = options_of_command(command)
            if _texts_of_one_step(options) != 1:
                continue
            yield self.finding(
                "each step compares one query with one text: the loss is 0, whatever the model says",
                "set --train_group_size to 2 or more (one positive and its negatives), and a larger"
                " --per_device_train_batch_size",
                cases=[self.case_of_command(command, "--train_group_size")],
            )


def _texts_of_one_step(options: Mapping[str, str]) -> int | None:
    """The texts that a query is compared with in one step; None where it is not known."""
    group = options.get("train_group_size", "8")
    rows = options.get("per_device_train_batch_size", "8")
    processes = options.get("nproc_per_node", "1")
    if not (group.isdecimal() and rows.isdecimal() and processes.isdecimal()):
        return None
    return int(group) * int(rows) * int(processes)
