"""Settings under which transformers' `Trainer.save_model` writes shards, or nothing, instead of the weights.

From its code: under FSDP it saves if the type of the state dict is FULL_STATE_DICT, and does nothing for any other.
Under ZeRO-3 it asks DeepSpeed for the gathered weights; if `stage3_gather_16bit_weights_on_model_save` is not on, which
is DeepSpeed's default, it catches the refusal and writes DeepSpeed's own checkpoint. Adapters are gathered by
themselves under ZeRO-3. The trade-off: files beside the settings that merge shards are known by the names of the
programs alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.evidence.deepspeed_settings_of_run import deepspeed_settings_of_run
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.findings import Case
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.settings.config import Config

GATHERS = "stage3_gather_16bit_weights_on_model_save"
NAMES_OF_GATHERS = (
    GATHERS,
    "gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
)
"""DeepSpeed also reads the setting by its name in the code, and by its former name"""
STATE_TYPES = ("state_dict_type", "fsdp_state_dict_type")
PARTS = ("SHARDED_STATE_DICT", "LOCAL_STATE_DICT")
MERGERS = (b"zero_to_fp32", b"merge-weights", b"merge_fsdp_weights", b"fp32_state_dict_from_zero")
"""Programs and functions that make whole weights of shards"""
MERGER_SUFFIXES = (".sh", ".py", ".md", ".txt", ".yaml", ".yml", ".slurm", ".ipynb", "")
MAX_FILES = 60
"""Files of one folder that are searched for a merger; projects have some ten beside their settings"""


class UngatheredSave(NamedTuple):
    """Settings that keep the weights in parts at saving."""

    message: str
    remedy: str
    cases: list[Case]


def save_without_gathered_weights(config: Config) -> UngatheredSave | None:
    """How the run's settings keep its weights in parts; None where they are gathered, or a file beside merges them."""
    save = _ungathered_zero3(config) or _sharded_fsdp(config)
    return None if save is None or _is_merged_beside(Path(config.path)) else save


def _ungathered_zero3(config: Config) -> UngatheredSave | None:
    """Weights of a full training that ZeRO-3 does not gather."""
    settings = deepspeed_settings_of_run(config)
    if settings is None or config.spec.training.lora is not None:
        return None
    zero = settings.value.get("zero_optimization")
    if settings.get("zero_optimization", "stage") != 3 or not isinstance(zero, Mapping):
        return None
    name = next((name for name in NAMES_OF_GATHERS if name in zero), GATHERS)
    value = zero.get(name)
    if value not in (None, False):
        return None
    origin = "false" if value is False else "not set, and false by default"
    return UngatheredSave(
        f"{name} is {origin} in {settings.name}: under ZeRO-3, each save writes DeepSpeed's shards and no"
        " model.safetensors, so no program can load the trained model",
        f'set "{GATHERS}": true in zero_optimization of {settings.name}; for a finished run, the zero_to_fp32.py in'
        " its output folder makes whole weights of the shards",
        [
            settings.case("zero_optimization", name if value is False else "stage"),
            setting_case(config, config.raw.get("deepspeed"), "deepspeed")
            if settings.document is not None
            else setting_case(config, 3, "deepspeed"),
        ],
    )


def _sharded_fsdp(config: Config) -> UngatheredSave | None:
    """Weights that each process keeps a part of under FSDP, by the settings' own table."""
    # Axolotl sets the type itself for its last save, and merges the shards; ms-swift makes checkpoints of shards.
    if config.stack not in ("trl", "transformers", "llama-factory"):
        return None
    table = config.raw.get("fsdp_config")
    if not config.raw.get("fsdp") or not isinstance(table, Mapping):
        return None
    key = next((key for key in STATE_TYPES if table.get(key) is not None), None)
    if key is None or str(table[key]).upper() not in PARTS:
        return None
    return UngatheredSave(
        f"fsdp_config.{key} is {table[key]}: transformers only saves a full state dict, so save_model writes no"
        " weights at the end, and checkpoints hold shards that no program loads",
        f"set fsdp_config.{key}: FULL_STATE_DICT; for a finished run, use accelerate merge-weights",
        [setting_case(config, table[key], "fsdp_config")],
    )


def _is_merged_beside(settings: Path) -> bool:
    """Does a file in the folder of the settings, or in the one above, name a program that merges shards?"""
    folder = settings.absolute().parent
    return any(
        _names_merger(file) for around in (folder, folder.parent) for file in _texts_of(around)
    )


def _texts_of(folder: Path) -> Iterator[Path]:
    """The first scripts, commands and texts of a folder."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    texts = (one for one in entries if one.suffix in MERGER_SUFFIXES and one.is_file())
    yield from islice(texts, MAX_FILES)


def _names_merger(file: Path) -> bool:
    """Does the text of a file name one of the programs?"""
    try:
        text = read_bytes_within_limit(file, SETTINGS)
    except (OSError, ValueError):
        return False
    return any(word in text for word in MERGERS)
