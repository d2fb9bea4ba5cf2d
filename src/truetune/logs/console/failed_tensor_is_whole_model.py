"""Recognises a failed tensor that has the size of all weights together, as FSDP gathers them in one
unit.

Logits and scores grow with rows; this one does not. FSDP flattens each unit to one tensor, and gathers it whole: where
it makes one unit of the model, that tensor is the model, once for the weights and once for their gradients.
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.logs.facts_in_files_beside_log import (
    LEAST_UNIT,
    MODEL_GIB,
    SHARDED_AS_ONE_UNIT,
    FilesBeside,
    SettingBeside,
)

BYTES_OF_MODEL_GIB = 2
"""The size of a model beside a log is that of its weights at two bytes each"""
MAX_DIFFERENCE = 0.01
"""Of the sizes. The flat tensor is padded to the processes, and the message has two decimals"""
GIB = 1 << 30


def bytes_per_weight_of_tensor(asked: float | None, beside: FilesBeside) -> int | None:
    """Bytes per weight if a tensor has the size of all weights, at two or four bytes each; None
    otherwise.
    """
    model = beside.setting(MODEL_GIB)
    if asked is None or model is None:
        return None
    for each in (2, 4):
        size = float(model.value) * each / BYTES_OF_MODEL_GIB
        if abs(asked - size) <= MAX_DIFFERENCE * size:
            return each
    return None


def fsdp_unit_setting(beside: FilesBeside) -> SettingBeside | None:
    """The setting that makes the whole model one unit of FSDP; None if none is known to."""
    policy = beside.setting(SHARDED_AS_ONE_UNIT)
    if policy is not None:
        return policy
    least, model = beside.setting(LEAST_UNIT), beside.setting(MODEL_GIB)
    if least is None or model is None:
        return None
    parameters = float(model.value) * GIB / BYTES_OF_MODEL_GIB
    return least if float(least.value) > parameters else None


def evidence_of_fsdp_unit(
    asked: float | None, each: int | None, unit: SettingBeside | None, beside: FilesBeside
) -> Iterator[str]:
    """Evidence of what the tensor is, and which setting makes it so large."""
    model = beside.setting(MODEL_GIB)
    if each is not None and model is not None:
        yield (
            f"{asked:.2f} GiB is all weights of {model.text} at {each} bytes each: the model in one piece"
            " (its weights gathered, or their gradient), and no logits"
        )
    if unit is not None:
        yield (
            f"{unit.text} ({unit.place}) makes the whole model one unit of FSDP: each GPU gathers all of it at once, as"
            " if nothing were sharded"
        )


def advice_on_fsdp_unit(unit: SettingBeside | None) -> str:
    """Advice on how FSDP gathers one layer at a time."""
    if unit is not None:
        return (
            f"set fsdp_auto_wrap_policy to TRANSFORMER_BASED_WRAP instead of {unit.text} ({unit.place}): then one"
            " layer at a time is gathered"
        )
    return (
        "let FSDP wrap each layer (accelerate: fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP; a loop of its own:"
        " auto_wrap_policy=, or fully_shard() of each layer before that of the model)"
    )
