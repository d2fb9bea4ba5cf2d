"""FSDP makes one unit of the whole model.

## What it does
Reads how `accelerate launch` makes units: `fsdp_auto_wrap_policy` in the file that it names, or as an option. NO_WRAP
makes one unit of the model; SIZE_BASED_WRAP does where `fsdp_min_num_params` is above the model's parameters, if its
size is known. Silent where nothing is gathered (NO_SHARD, SHARD_GRAD_OP) and where no policy is written.

## Why it is bad
A unit is gathered whole on each GPU for its forward and backward pass, and its gradient is made whole before it is
shared out. With one unit that is the model itself: each GPU needs room for all weights and all gradients, as if nothing
were sharded, and nothing is computed while they are gathered.

## Example
```bash
accelerate launch --use_fsdp --num_processes 4 --fsdp_auto_wrap_policy NO_WRAP train.py
```

## Use instead
```bash
accelerate launch --use_fsdp --num_processes 4 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP train.py
```

## Fix safety
Safe: it decides how weights are grouped, not what is learned.

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
                    f"FSDP makes one unit of the whole model ({reason}): each GPU gathers all weights at once, and"
                    " makes their whole gradient, as if nothing were sharded",
                    "set fsdp_auto_wrap_policy to TRANSFORMER_BASED_WRAP: then one layer at a time is gathered",
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
