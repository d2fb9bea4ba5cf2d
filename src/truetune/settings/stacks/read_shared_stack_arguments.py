"""Reads the arguments that several stacks pass on unchanged to transformers, peft and DeepSpeed.

These stacks pass such keys on unchanged (`fsdp`, `deepspeed`, `gradient_checkpointing_kwargs`), so one reading holds
for all. A key that a stack renames or interprets is read in the module of that stack.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truetune.errors import SpecError
from truetune.settings import located_document
from truetune.settings.stacks.config_draft import UNKNOWN_VALUE, ConfigDraft


def read_sharding(draft: ConfigDraft) -> None:
    """Read `fsdp` with `fsdp_config`, and `deepspeed` with its stage, into the draft."""
    fsdp = draft.get("fsdp")
    details = draft.get("fsdp_config")
    draft.put("training.fsdp", bool(fsdp) or bool(details and fsdp is None), "fsdp", "fsdp_config")
    if _fsdp_offloads_to_cpu(fsdp, details):
        draft.put("training.other", {"fsdp_offload_params": True}, "fsdp_config", "fsdp")
    value = draft.get("deepspeed")
    if value is None or value is UNKNOWN_VALUE or value == "":
        return
    zero = _zero_settings_if_here(draft, value)
    if zero is None:
        return
    draft.put("training.deepspeed_stage", _zero_stage(draft, zero), "deepspeed")
    offloads = offloads_in_zero(zero)
    if offloads:
        draft.put("training.other", offloads, "deepspeed")


def offloads_in_zero(zero: dict[str, Any]) -> dict[str, Any]:
    """The keys of `zero_optimization` that move something off the GPU."""
    return {key: zero[key] for key in OFFLOAD_KEYS if _is_moved_off_gpu(zero.get(key))}


def _fsdp_offloads_to_cpu(fsdp: Any, details: Any) -> bool:
    """Does FSDP keep the weights on the CPU: `fsdp: full_shard offload`, or a key of fsdp_config?"""
    words = fsdp.split() if isinstance(fsdp, str) else fsdp if isinstance(fsdp, list) else []
    if not isinstance(details, dict):
        return "offload" in words
    return "offload" in words or any(details.get(key) is True for key in FSDP_OFFLOAD_KEYS)


FSDP_OFFLOAD_KEYS = ("fsdp_offload_params", "offload_params", "cpu_offload")
OFFLOAD_KEYS = ("offload_optimizer", "offload_param")


def _is_moved_off_gpu(value: Any) -> bool:
    """Is it moved off the GPU: `{"device": "cpu"}` or `nvme`?"""
    return isinstance(value, dict) and value.get("device") not in (None, "none")


def _zero_settings_if_here(draft: ConfigDraft, value: Any) -> dict[str, Any] | None:
    """`zero_optimization` of DeepSpeed's settings, empty where they have none; None where their file is not here."""
    if isinstance(value, str):
        path = draft.find(value)
        if path is None or not path.is_file():
            draft.notes.append(f"deepspeed: {value} is not here, so its ZeRO stage is not known")
            return None
        value = located_document.read_located_document(path).value
    zero = value.get("zero_optimization", {}) if isinstance(value, dict) else {}
    return zero if isinstance(zero, dict) else {}


def _zero_stage(draft: ConfigDraft, zero: dict[str, Any]) -> int:
    """The stage of ZeRO in DeepSpeed's settings."""
    stage = zero.get("stage", 0)
    if stage not in (0, 1, 2, 3):
        raise SpecError(
            f"{draft.at('deepspeed')}: zero_optimization.stage: expected 0, 1, 2 or 3, found"
            f" {stage!r}"
        )
    return int(stage)


def read_gradient_checkpointing(draft: ConfigDraft) -> None:
    """Read `gradient_checkpointing`, or `activation_checkpointing` if that is set, and
    `use_reentrant` of its kwargs, into the draft.
    """
    names = ("activation_checkpointing", "gradient_checkpointing")
    value = next(
        (v for v in map(draft.get, names) if v is not None), False if draft.defaults else None
    )
    draft.put("training.gradient_checkpointing", value, *names)
    for name in (f"{name}_kwargs" for name in names):
        if (reentrant := draft.table(name).get("use_reentrant")) is not None:
            draft.put("training.use_reentrant", reentrant, name)
            return


def join_loss_types(value: Any) -> str:
    """The loss type as one name: `sigmoid`, or `sigmoid+sft` for several."""
    return "+".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def flatten_token_indices(value: Any) -> Any:
    """The token ids in peft's `trainable_token_indices`, which is a list, or a list for each layer."""
    if not isinstance(value, dict):
        return value
    return [
        index
        for of_layer in value.values()
        for index in (of_layer if isinstance(of_layer, list) else [of_layer])
    ]


def device_map_name(value: Any) -> str | None:
    """The name of a device map, `auto` and the like; `{...}` for a table of devices."""
    return value if isinstance(value, str) else None if value is None else str(value)


def read_special_token_keys(draft: ConfigDraft, *keys: str) -> None:
    """Read the keys that set a special token (`pad_token: <|pad|>`) into the draft."""
    found = {key: draft.values[key] for key in keys if isinstance(draft.values.get(key), str)}
    if found:
        draft.put("training.special_tokens", found, *found)


def find_local_template_file(draft: ConfigDraft, value: str) -> str | None:
    """The path of a template file that is here."""
    if "{" in value or "\n" in value:
        return None
    found = draft.find(value)
    return str(found) if found is not None and Path(found).is_file() else None
