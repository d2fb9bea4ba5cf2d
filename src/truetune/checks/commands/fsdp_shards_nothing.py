"""FSDP is configured to shard nothing.

## What it does
Reads the sharding strategy of `accelerate launch`: `fsdp_sharding_strategy` in the file that the command names, or the
option. NO_SHARD (3 in older files) keeps all weights, gradients and optimizer states on each GPU. It does not fire for
one process, or with FSDP version 2, which has no such strategy.

## Why it is bad
Each GPU needs as much memory as with DDP, and DDP is faster: you pay for FSDP and get nothing for it. A model that does
not fit on one GPU still does not fit.

## Example
```bash
accelerate launch --use_fsdp --num_processes 4 --fsdp_sharding_strategy NO_SHARD train.py
```

## Use instead
```bash
accelerate launch --use_fsdp --num_processes 4 --fsdp_sharding_strategy FULL_SHARD train.py
```

## Fix safety
Safe: it changes where weights are stored, not the training result. FULL_SHARD sends each layer between the GPUs for
every pass.

## References
- torch/distributed/fsdp/api.py (`ShardingStrategy.NO_SHARD`, deprecated), accelerate/utils/constants.py
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.read_settings_in_launch_files import (
    LaunchFiles,
    LocatedValue,
    find_launches_with_files,
    first_set_value,
)
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile

NO_SHARDING = frozenset(("NO_SHARD", "3"))
"""The strategy by FSDP's name, and by accelerate's number"""
STRATEGY = "fsdp_sharding_strategy"


class FsdpShardsNothing(CommandRule):
    code = "CMD130"
    fault = Fault.FSDP_DOES_NOT_SHARD_LAYERS
    symptoms = ("out-of-memory", "several-gpus")
    severity = "warning"
    stability = "preview"
    what = "launches that say how FSDP shards"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[LaunchFiles]:
        """The places that the rule looks at: the launches that say how FSDP shards."""
        for launch in find_launches_with_files(file):
            if _sharding_strategy(launch) is not None:
                yield launch

    def findings(self) -> Iterator[Finding]:
        for launch in self.examined_places(self.subject):
            place = _sharding_strategy(launch)
            if (
                place is None
                or str(place.value).upper() not in NO_SHARDING
                or _starts_one_process(launch)
            ):
                continue
            yield self.finding(
                f"FSDP shards nothing ({place.text.rpartition('.')[2]}): each GPU holds all weights, gradients and"
                " optimizer states, as with plain DDP",
                f"set {STRATEGY} to FULL_SHARD, or remove FSDP if the model fits on one GPU",
                cases=[
                    Case(place.text, file=place.file, line=place.line),
                    self.case_of_command(launch.command, launch.command.text[:300]),
                ],
            )


def _sharding_strategy(launch: LaunchFiles) -> LocatedValue | None:
    """The sharding strategy of FSDP 1: as the command sets it, else as the file that it names does."""
    version = _option_or_file_value(launch, "fsdp_version")
    if version is not None and str(version.value) == "2":
        return None
    return _option_or_file_value(launch, STRATEGY)


def _option_or_file_value(launch: LaunchFiles, name: str) -> LocatedValue | None:
    """An option of the command, or the same key of accelerate's file."""
    return launch.script_option_value(name) or first_set_value(
        launch.accelerate, ("fsdp_config", name)
    )


def _starts_one_process(launch: LaunchFiles) -> bool:
    """Does the launch start one process?"""
    located_value = launch.script_option_value("num_processes") or first_set_value(
        launch.accelerate, ("num_processes",)
    )
    return located_value is not None and located_value.value == 1
