"""Settings of LoRA that an adapter decides, because the training continues it.

Axolotl (`lora_model_dir`), LLaMA-Factory (`adapter_name_or_path` without `create_new_adapter`) and ms-swift
(`adapters`) load such an adapter with peft's `from_pretrained`, which takes rank, scale and modules from its
adapter_config.json. What the settings say of them is read by nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.read_settings_in_launch_files import read_document_in_folder_or_parents
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import is_switched_on

COMPARED = ("r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "target_modules")
"""Fields of Lora, which adapter_config.json calls the same"""
STACKS = ("axolotl", "llama-factory", "ms-swift")
ADAPTER_CONFIG = "adapter_config.json"
ALL_LINEAR = "all-linear"
PROJECTIONS_OF_A_LAYER = 7
"""Of the families that are trained today: q, k, v, o, gate, up, down"""


class DecidedSetting(NamedTuple):
    """A setting of LoRA that the adapter decides otherwise."""

    field: str
    """Of Lora"""
    asked: str
    decided: str


class ContinuedAdapter(NamedTuple):
    """An adapter that the training continues, and what it decides."""

    name: str
    """As the settings call it"""
    file: str
    settings: tuple[DecidedSetting, ...]


def continued_adapter(config: Config) -> ContinuedAdapter | None:
    """The adapter that the training continues, where it is here; None if it makes a new one."""
    names = [part.strip() for part in str(config.spec.training.adapter or "").split(",")]
    if config.stack not in STACKS or not names[-1] or config.spec.training.lora is None:
        return None
    if is_switched_on(config.raw.get("create_new_adapter")) or not _is_config_of_training(config):
        return None
    # Of several adapters, LLaMA-Factory merges all but the last one.
    document = read_document_in_folder_or_parents(
        Path(config.path).parent, f"{names[-1]}/{ADAPTER_CONFIG}"
    )
    if document is None:
        return None
    return ContinuedAdapter(
        names[-1], document.path, tuple(_settings_adapter_decides_otherwise(config, document.value))
    )


def _is_config_of_training(config: Config) -> bool:
    """Is this a training? LLaMA-Factory's files of an evaluation or an export name adapters too."""
    return config.stack != "llama-factory" or is_switched_on(config.raw.get("do_train"))


def _settings_adapter_decides_otherwise(config: Config, adapter: Any) -> Iterator[DecidedSetting]:
    """The settings that the file makes and the adapter decides otherwise."""
    for field in COMPARED:
        asked, decided = getattr(config.spec.training.lora, field), adapter.get(field)
        is_written = _is_field_set_in_file(config, field, asked)
        if (
            is_written
            and decided is not None
            and not _are_setting_values_equivalent(field, asked, decided)
        ):
            yield DecidedSetting(field, _value_for_message(asked), _value_for_message(decided))


def _is_field_set_in_file(config: Config, field: str, asked: Any) -> bool:
    """Does the file set the field itself? LLaMA-Factory makes a scale out of the rank."""
    place = config.places.get(f"training.lora.{field}")
    key = place.key if place is not None else {"r": "lora_rank"}.get(field, field)
    if field == "target_modules":
        return place is not None or key in config.raw
    return key in config.raw and config.raw[key] == asked


def _are_setting_values_equivalent(field: str, asked: Any, decided: Any) -> bool:
    """Do two values of a setting say the same?"""
    if field != "target_modules":
        return bool(asked == decided)
    if asked is None or isinstance(decided, str):
        return True
    if asked == ALL_LINEAR:
        return len(set(decided)) >= PROJECTIONS_OF_A_LAYER
    return isinstance(asked, str) or {_last_part_of_module_name(name) for name in asked} == {
        _last_part_of_module_name(name) for name in decided
    }


def _last_part_of_module_name(name: object) -> str:
    """The last part of a module's name."""
    return str(name).rpartition(".")[2]


def _value_for_message(value: Any) -> str:
    """A value for a message."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ", ".join(sorted(map(str, value))) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
