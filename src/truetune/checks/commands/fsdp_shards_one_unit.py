"""FSDP treats the whole model as one unit, so every GPU gathers it at once.

## What it does
Reads how `accelerate launch` wraps layers: `fsdp_auto_wrap_policy` in the file that it names, or as an option. NO_WRAP
makes the model one unit. SIZE_BASED_WRAP does the same if `fsdp_min_num_params` is above the model's parameter count,
if that is known. It does not fire if nothing is gathered (NO_SHARD, SHARD_GRAD_OP) or no policy is set.

## Why it is bad
Each GPU gathers a whole unit for its forward and backward pass, and holds the whole gradient of the unit before it is
sharded. With one unit, each GPU needs memory for all weights and all gradients, as if nothing were sharded, and it
can't compute while they are gathered.

## Example
```bash
accelerate launch --use_fsdp --num_processes 4 --fsdp_auto_wrap_policy NO_WRAP train.py
```

## Use instead
```bash
accelerate launch --use_fsdp --num_processes 4 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP train.py
```

## Fix safety
Safe: it changes how weights are grouped, not the training result.

## References
- accelerate/utils/dataclasses.py (FullyShardedDataParallelPlugin), torch/distributed/fsdp/wrap.py
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.accelerate_and_deepspeed_memory_settings import (
    BY_SIZE,
    GATHERING,
    NO_POLICY,
    fsdp_policy_wrapping_no_layer,
    min_parameters_of_fsdp_unit,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.minimum_host_memory_of_run import fully_trained_model_of_launch
from truetune.checks.read_settings_in_launch_files import (
    LaunchFiles,
    LocatedValue,
    find_launches_with_files,
)
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile


class FsdpShardsOneUnit(CommandRule):
    code = "CMD094"
    fault = Fault.FSDP_DOES_NOT_SHARD_LAYERS
    symptoms = ("out-of-memory", "several-gpus")
    severity = "warning"
    stability = "preview"
    what = "launches that say how FSDP makes units"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[LaunchFiles]:
        """The places that the rule looks at: the launches that say how FSDP makes units."""
        for launch in find_launches_with_files(file):
            if _wrap_policy_of_command(launch) is not None or _has_fsdp_settings_in_file(launch):
                yield launch

    def findings(self) -> Iterator[Finding]:
        for launch in self.examined_places(self.subject):
            place, reason = _line_making_one_unit_and_reason(launch)
            if place is not None:
                yield self.finding(
                    f"FSDP treats the whole model as one unit ({reason}): each GPU gathers all weights and gradients"
                    " at once, as if nothing were sharded",
                    "set fsdp_auto_wrap_policy to TRANSFORMER_BASED_WRAP, which gathers one layer at a time",
                    cases=[
                        Case(place.text, file=place.file, line=place.line),
                        self.case_of_command(launch.command, launch.command.text[:300]),
                    ],
                )


def _wrap_policy_of_command(launch: LaunchFiles) -> LocatedValue | None:
    """The wrap policy that the command itself names."""
    return launch.script_option_value("fsdp_auto_wrap_policy", "fsdp-auto-wrap-policy")


def _has_fsdp_settings_in_file(launch: LaunchFiles) -> bool:
    """Does the file that the command names hold settings of FSDP?"""
    return launch.accelerate is not None and "fsdp_config" in launch.accelerate.value


def _line_making_one_unit_and_reason(launch: LaunchFiles) -> tuple[LocatedValue | None, str]:
    """The line that makes one unit of the model, and why it does; None where none does."""
    policy = _wrap_policy_of_command(launch)
    strategy = launch.script_option_value("fsdp_sharding_strategy")
    if strategy is not None and str(strategy.value).upper() not in GATHERING:
        return None, ""
    if policy is not None:
        named = str(policy.value).upper()
        if named == NO_POLICY:
            return policy, policy.text
        least = launch.script_option_value("fsdp_min_num_params") if named == BY_SIZE else None
        return _min_unit_above_model_size_and_reason(launch, least)
    if launch.accelerate is None:
        return None, ""
    written = fsdp_policy_wrapping_no_layer(launch.accelerate)
    if written is not None:
        return written, written.text.rpartition(".")[2]
    return _min_unit_above_model_size_and_reason(
        launch, min_parameters_of_fsdp_unit(launch.accelerate)
    )


def _min_unit_above_model_size_and_reason(
    launch: LaunchFiles, least: LocatedValue | None
) -> tuple[LocatedValue | None, str]:
    """The least size of a unit and why it matters, where the model has fewer parameters than that;
    else None and no text.
    """
    model = fully_trained_model_of_launch(launch) if least is not None else None
    if least is None or model is None or not isinstance(least.value, int):
        return None, ""
    if least.value <= model.parameters:
        return None, ""
    text = least.text.rpartition(".")[2]
    return least, f"{text}, and {model.name} has {model.parameters:,} parameters"
