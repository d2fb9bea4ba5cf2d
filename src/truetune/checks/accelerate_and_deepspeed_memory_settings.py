"""Settings about GPU memory in the files of a launcher: FSDP units and recomputation of accelerate,
ZeRO stage, loss scale and offload of DeepSpeed.

A log and a script know nothing of them: `accelerate launch --config_file fsdp.yaml` decides whether layers are gathered
one at a time, whether activations are computed twice, and where the states of the optimizer lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from truetune.checks.read_settings_in_launch_files import LocatedValue, first_set_value
from truetune.logs.facts_in_files_beside_log import (
    LEAST_UNIT,
    LOSS_SCALE,
    OPTIMIZER_ON_CPU,
    RECOMPUTED_BY_LAUNCHER,
    SHARDED_AS_ONE_UNIT,
    ZERO_STAGE,
    SettingBeside,
)
from truetune.settings.located_document import LocatedDocument, parse_located_document

MARKS = ("fsdp_config", "zero_optimization", "deepspeed_config", "loss_scale")
"""One of them stands in each file that is read here"""
NO_POLICY = "NO_WRAP"
BY_SIZE = "SIZE_BASED_WRAP"
GATHERING = frozenset(("FULL_SHARD", "HYBRID_SHARD", "1", "4", "true"))
"""Strategies under which the weights of a unit are gathered for each pass: FSDP's names, accelerate's numbers, and
`fsdp_reshard_after_forward: true` of FSDP2"""
ON_CPU = frozenset(("cpu", "true"))


def memory_settings_in_document(text: str, path: Path) -> Iterator[SettingBeside]:
    """What a YAML or JSON file of a launcher says about memory."""
    if not any(mark in text for mark in MARKS):
        return
    document = parse_located_document(text, str(path))
    if not isinstance(document.value, Mapping):
        return
    yield from _large_fsdp_units(document)
    recomputed = _fsdp_setting(document, "activation_checkpointing")
    if recomputed is not None and recomputed.value is True:
        yield _setting_at_line(RECOMPUTED_BY_LAUNCHER, True, recomputed)
    stage = first_set_value(
        document,
        ("zero_optimization", "stage"),
        ("deepspeed_config", "zero_stage"),
        ("deepspeed_config", "zero_optimization", "stage"),
    )
    if stage is not None and isinstance(stage.value, int):
        yield _setting_at_line(ZERO_STAGE, stage.value, stage)
    scale = first_set_value(document, ("fp16", "loss_scale"))
    if scale is not None and isinstance(scale.value, int | float) and scale.value:
        yield _setting_at_line(LOSS_SCALE, scale.value, scale)
    place = line_of_optimizer_offload(document)
    if place is not None:
        yield _setting_at_line(OPTIMIZER_ON_CPU, True, place)


def _large_fsdp_units(document: LocatedDocument) -> Iterator[SettingBeside]:
    """The FSDP policy that makes one unit of the whole model, or the least size of a unit if units
    are made by size.
    """
    policy = fsdp_policy_wrapping_no_layer(document)
    if policy is not None:
        yield _setting_at_line(SHARDED_AS_ONE_UNIT, True, policy)
    least = min_parameters_of_fsdp_unit(document)
    if least is not None and isinstance(least.value, int):
        yield _setting_at_line(LEAST_UNIT, least.value, least)


def fsdp_policy_wrapping_no_layer(document: LocatedDocument) -> LocatedValue | None:
    """The FSDP policy `NO_WRAP`, which makes one unit of the whole model, if weights are sharded;
    else None.
    """
    policy = _fsdp_setting(document, "auto_wrap_policy")
    is_none = policy is not None and str(policy.value).upper() == NO_POLICY
    return policy if is_none and _gathers_sharded_weights(document) else None


def min_parameters_of_fsdp_unit(document: LocatedDocument) -> LocatedValue | None:
    """The least number of parameters of an FSDP unit, if units are made by size and weights are
    sharded; else None.
    """
    policy = _fsdp_setting(document, "auto_wrap_policy")
    if (
        policy is None
        or str(policy.value).upper() != BY_SIZE
        or not _gathers_sharded_weights(document)
    ):
        return None
    return _fsdp_setting(document, "min_num_params")


def _gathers_sharded_weights(document: LocatedDocument) -> bool:
    """Does FSDP shard weights and gather them for each pass? Its default is that it does."""
    strategy = _fsdp_setting(document, "reshard_after_forward") or _fsdp_setting(
        document, "sharding_strategy"
    )
    if strategy is None:
        return True
    value = str(strategy.value)
    return value.upper() in GATHERING or value.lower() in GATHERING


def _fsdp_setting(document: LocatedDocument, name: str) -> LocatedValue | None:
    """A setting of accelerate's `fsdp_config`, with or without the prefix `fsdp_`."""
    return first_set_value(document, ("fsdp_config", f"fsdp_{name}"), ("fsdp_config", name))


def line_of_optimizer_offload(document: LocatedDocument) -> LocatedValue | None:
    """The line that puts the optimizer's states into the machine's memory, in a DeepSpeed or
    accelerate file; None if none does.
    """
    located_value = first_set_value(
        document,
        ("zero_optimization", "offload_optimizer", "device"),
        ("deepspeed_config", "offload_optimizer_device"),
        ("deepspeed_config", "zero_optimization", "offload_optimizer", "device"),
        ("zero_optimization", "cpu_offload"),
        ("fsdp_config", "fsdp_offload_params"),
    )
    return (
        located_value
        if located_value is not None and str(located_value.value).lower() in ON_CPU
        else None
    )


def _setting_at_line(name: str, value: bool | int | float, place: LocatedValue) -> SettingBeside:
    """A value as a setting beside a log, at the line that sets it, named by its last key alone."""
    return SettingBeside(name, value, place.file, place.line, place.text.rpartition(".")[2])
