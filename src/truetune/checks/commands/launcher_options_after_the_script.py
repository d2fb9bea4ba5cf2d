"""Options of a launcher come after the script, and the script gets them instead.

## What it does
Finds `torchrun`, `accelerate launch` and `deepspeed` commands in which an option that only the launcher has
(`--nproc_per_node`, `--num_processes`, `--num_gpus`, `--use_deepspeed`, `--config_file`) comes after the script.

## Why it is bad
A launcher reads its options up to the script's name. After it they belong to the script: torchrun then starts one
process, and accelerate takes its default configuration. A script that ignores unknown options trains on one GPU
without a word.

## Example
```bash
torchrun train.py --nproc_per_node 8 --model Qwen/Qwen2.5-7B --lr 1e-5
```

## Use instead
```bash
torchrun --nproc_per_node 8 train.py --model Qwen/Qwen2.5-7B --lr 1e-5
```

## Fix safety
The number of processes changes, and with it the batch of a step.

## References
- PyTorch documentation, "torchrun": options go before the script; accelerate documentation, "Launching scripts"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand

OPTIONS_OF_LAUNCHERS: Mapping[tuple[str, ...], frozenset[str]] = {
    ("torchrun",): frozenset(("--nproc-per-node", "--nnodes", "--standalone", "--rdzv-endpoint")),
    ("accelerate", "launch"): frozenset(
        ("--num-processes", "--num-machines", "--multi-gpu", "--use-deepspeed", "--use-fsdp",
         "--main-process-port", "--deepspeed-config-file")
    ),
    ("deepspeed",): frozenset(("--num-gpus", "--num-nodes", "--include", "--hostfile", "--master-port")),
}  # fmt: skip
"""Launcher -> options that scripts do not have"""


class LaunchedScript(NamedTuple):
    """A launch with the options after its script."""

    command: ShellCommand
    launcher: str
    script: str
    options: tuple[str, ...]
    own: frozenset[str]
    """The launcher's"""


class LauncherOptionsAfterTheScript(CommandRule):
    code = "CMD247"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("several-gpus",)
    severity = "error"
    what = "scripts that a launcher starts"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[LaunchedScript]:
        """The scripts that launchers start, with their options."""
        for command in file.commands:
            for launcher, own in OPTIONS_OF_LAUNCHERS.items():
                behind = command.words_following(*launcher)
                script = next(
                    (n for n, word in enumerate(behind or ()) if word.endswith(".py")), None
                )
                if behind is not None and script is not None:
                    yield LaunchedScript(
                        command, " ".join(launcher), behind[script], behind[script + 1 :], own
                    )

    def findings(self) -> Iterator[Finding]:
        for launch in self.examined_places(self.subject):
            written = [word.partition("=")[0] for word in launch.options]
            lost = [word for word in written if word.replace("_", "-") in launch.own]
            # `torchrun --nproc_per_node 1 launch.py --nproc_per_node 8`: the script may start processes itself.
            before = launch.command.text.partition(launch.script)[0]
            if not lost or lost[0] in before:
                continue
            yield self.finding(
                f"{lost[0]} comes after {launch.script}: the script gets it, and {launch.launcher} starts with its"
                " default",
                f"put {lost[0]} before {launch.script}",
                cases=[self.case_of_command(launch.command, lost[0])],
            )
