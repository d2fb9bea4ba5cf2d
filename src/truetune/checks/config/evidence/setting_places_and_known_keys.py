"""The places at which settings stand in their file, and the settings that a stack knows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any

from truetune.checks.findings import Case
from truetune.errors import SpecError
from truetune.settings.config import Config, SettingLocation
from truetune.settings.located_document import TextPosition, parse_located_document
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.known_keys import load_known_keys
from truetune.settings.stacks.read_nested_rl_settings import last_parts_of_verl_names
from truetune.settings.stacks.registry import config_readers
from truetune.settings.training_settings import Training

BUILT_ON_TRANSFORMERS = {
    "trl": ("trl", "transformers", "peft"),
    "transformers": ("transformers", "peft"),
    "axolotl": ("axolotl",),
    "llama-factory": ("llama-factory",),
}
"""Stack -> the packages whose keys and defaults are recorded (`spec.stacks.facts`) and that it takes"""


@lru_cache(maxsize=8)
def _key_positions(text: str, path: str) -> Mapping[tuple[Hashable, ...], TextPosition]:
    """The positions of the keys in a file's text."""
    try:
        return parse_located_document(text, path).spots
    except SpecError:
        return {}


def setting_place(config: Config, *names: str) -> SettingLocation:
    """The place of the first of these that is set, a field of RunSpec (`training.optim`) or a key
    of the file (`datasets.0.type`); else the file.
    """
    source = is_config_of_python_program(config)
    for name in names:
        if name in config.places:
            return config.places[name]
        if name in config.key_places:
            return config.key_places[name]
        way = tuple(int(part) if part.isdecimal() else part for part in name.split("."))
        spot = None if source else _key_positions(config.text, config.path).get(way)
        if spot is not None:
            return SettingLocation(config.path, spot.line, name, spot.column)
    return SettingLocation(config.path, 1, "")


def setting_case(config: Config, value: object, *names: str) -> Case:
    """A case for a message: the setting and its value at its place; a default where the file does
    not set it.
    """
    at = setting_place(config, *names)
    shown = str(value).lower() if isinstance(value, bool) else value
    if not at.key:
        # What is not set at all has no default worth naming.
        default = "" if str(shown).startswith("not set") else " by default"
        return Case(f"{names[0].removeprefix('training.')}: {shown}{default}", file=at.file)
    return case_at_place(at, f"{at.key}: {shown}")


def key_as_written(config: Config, key: str) -> str:
    """A setting's key as the file spells it: prime-rl takes names of earlier releases too."""
    place = config.key_places.get(key)
    if place is None or value_at_dotted_key(config.raw, place.key) is None:
        return key
    return place.key


def case_at_place(place: SettingLocation, text: str) -> Case:
    """A case for a message: a text at its place."""
    return Case(text, file=place.file, line=place.line, column=place.column)


def is_config_of_python_program(config: Config) -> bool:
    """Are the settings those of a Python program, of which only a part is known?"""
    return config.path.endswith((".py", ".ipynb"))


def is_value_unknown(config: Config, *names: str) -> bool:
    """Is one of these fields of Training set to a value that cannot be told without running the program?"""
    return any(
        f"training.{name}" in config.places and getattr(config.spec.training, name) is None
        for name in names
    ) and is_config_of_python_program(config)


def value_at_dotted_key(raw: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key of a file: `trl.use_vllm`; None where it is not set."""
    value: Any = raw
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def offset_of_place(text: str, place: SettingLocation) -> int:
    """The offset in the text, in characters, at which a place stands."""
    return (
        sum(len(line) for line in text.split("\n")[: place.line - 1])
        + place.line
        - 1
        + place.column
        - 1
    )


def numbered_tables_of_list(config: Config, key: str) -> list[tuple[int, dict[str, Any]]]:
    """The tables in a list of the file (`datasets`), each with its number."""
    value = config.raw.get(key)
    return (
        [(i, item) for i, item in enumerate(value) if isinstance(item, dict)]
        if isinstance(value, list)
        else []
    )


def known_keys(config: Config) -> frozenset[str]:
    """The keys that the stack knows; those of transformers and peft where it builds on them.

    Of a program that a plug-in reads, those that the plug-in names."""
    if config.stack == "truetune":
        return frozenset((*RunSpec.model_fields, *Training.model_fields))
    if config.stack == "verl":
        return last_parts_of_verl_names()
    if config.stack == "openrlhf":
        names = load_known_keys("openrlhf").classes["names"]
        return frozenset(name.rpartition(".")[2] for name in names)
    packages = BUILT_ON_TRANSFORMERS.get(config.stack)
    if packages is None:
        # The options of a command are no file of settings: who reads them knows all of them.
        reader = config_readers().get(config.stack)
        return reader.keys() if reader is not None else frozenset(config.raw)
    return frozenset(
        key
        for package in packages
        for keys in load_known_keys(package).classes.values()
        for key in keys
    )
