"""Settings that change how a model computes positions or attention: those that a training or a
server sets, and those that a config.json holds.

A training with scaled positions (`rope_scaling: linear`) learns weights for these positions. The override stands in the
training's own settings, so that nothing hands it on to a merge or a server.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.checkpoint.read_text_part_of_model_config import (
    first_positive_text_model_setting,
)
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import read_json
from truetune.settings.config import Config
from truetune.source.parsed_source_file import Module, read_module

POSITIONS, BASE, WINDOW = "rope_scaling", "rope_theta", "sliding_window"
NAMES_OF_KEYS: Mapping[str, tuple[str, ...]] = {
    POSITIONS: ("rope_scaling", "rope_parameters"),
    BASE: ("rope_theta",),
    WINDOW: ("sliding_window",),
}
"""What is overridden -> its names in config.json, in settings and in calls"""
CONTAINERS = ("overrides_of_model_config", "model_init_kwargs", "model_kwargs", "model_config")
"""Keys of settings that hold values for config.json"""
SERVER_OPTIONS = ("--rope-scaling", "--rope_scaling", "--hf-overrides", "--hf_overrides")
NONE_AT_ALL = (None, "", "none", "null", "default", False)
ONLY_FAR_POSITIONS = ("dynamic",)
"""Scalings that leave positions as they are up to the model's own length"""


class Override(NamedTuple):
    """A value of config.json that a training replaces."""

    key: str
    value: object
    place: str
    """Key in the settings, or empty for a script"""
    line: int
    """1-based, in a script; 0 in settings"""

    @property
    def kind(self) -> str:
        """The kind of a scaling (`linear`, `yarn`); of any other override its value as text."""
        return rope_scaling_kind(self.value) or str(self.value)

    @property
    def scaling_factor(self) -> float | None:
        """The factor of a scaling; None for any other override, or if none is known."""
        factor = self.value.get("factor") if isinstance(self.value, dict) else None
        return float(factor) if isinstance(factor, int | float) else None


def rope_scaling_kind(value: object) -> str:
    """The kind of a RoPE scaling, such as `linear`, that is given as a word or as a mapping; empty
    if there is none.
    """
    if isinstance(value, dict):
        value = value.get("rope_type") or value.get("type")
    is_none = value in NONE_AT_ALL
    return "" if is_none or not isinstance(value, str) else value.lower()


def overrides_of_config(config: Config) -> list[Override]:
    """The overrides of config.json that a training makes, by its settings or by its script."""
    if config.path.endswith((".py", ".ipynb")):
        try:
            return overrides_of_module(read_module(Path(config.path)))
        except (TruetuneError, OSError, ValueError):
            return []
    overrides = []
    for key, names in NAMES_OF_KEYS.items():
        for place, holder in _settings_parts_for_model_config(config.raw):
            value = next((holder[name] for name in names if name in holder), None)
            if _is_override_set(key, value):
                overrides.append(Override(key, value, place or key, 0))
    return overrides


def _settings_parts_for_model_config(
    raw: Mapping[str, Any],
) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The parts of settings that may hold values for config.json, each with its key."""
    yield "", raw
    for key in CONTAINERS:
        if isinstance(raw.get(key), dict):
            yield key, raw[key]


def _is_override_set(key: str, value: object) -> bool:
    """Does a value of settings or of a script override anything?

    A scaling without a kind does not.
    """
    return value not in NONE_AT_ALL and (key != POSITIONS or rope_scaling_kind(value) != "")


def overrides_of_module(module: Module) -> list[Override]:
    """The overrides that a script gives to the load of its model, or sets in the model's config."""
    overrides = []
    named = override_keys_in_text(module.text)
    for key in (one for one in NAMES_OF_KEYS if one in named):
        for node, expression in _model_load_and_config_values_in_code(module, NAMES_OF_KEYS[key]):
            value = module.flow.value(expression)
            if isinstance(value, dict | str | int | float) and _is_override_set(key, value):
                overrides.append(Override(key, value, "", module.place(node)[0]))
    return overrides


def _model_load_and_config_values_in_code(
    module: Module, names: tuple[str, ...]
) -> Iterator[tuple[ast.AST, ast.expr]]:
    """(place, value) of what the load of a model is given by these names, and of what its config is set to."""
    for call in module.calls("*.from_pretrained"):
        for name in names:
            if name in call.keywords:
                yield call.node, call.keywords[name]
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr not in names:
            continue
        # `self.rope_theta = ...` is a class of one's own that keeps its number, and no config of the model.
        if not isinstance(target.value, ast.Name) or target.value.id != "self":
            yield node, node.value


def override_keys_in_text(text: str) -> frozenset[str]:
    """The override keys (`rope_scaling` ...) that a text names."""
    return frozenset(
        key for key, names in NAMES_OF_KEYS.items() if any(name in text for name in names)
    )


def override_keys_of_server_options(options: Iterable[str]) -> frozenset[str]:
    """The override keys that the options of a server's command set, as JSON or as
    `--hf-overrides.rope_scaling...`.
    """
    words = list(options)
    text = " ".join(words)
    named = override_keys_in_text(text)
    is_scaled = any(word.startswith(SERVER_OPTIONS[:2]) for word in words)
    return named | {POSITIONS} if is_scaled else named


def read_model_config(folder: str, beside: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """The config.json of a folder, with its path, looked for from the place of the file that names
    it and from here; None if there is none.
    """
    for root in (beside.parent, Path()):
        path = root / folder / "config.json"
        try:
            config = read_json(path, MODEL_FILE)
        except (TruetuneError, OSError, ValueError):
            continue
        if isinstance(config, dict):
            return path, config
    return None


def override_value_in_config(config: Mapping[str, Any], key: str) -> object:
    """What config.json holds of an override; None where it has none."""
    inner = config.get("text_config")
    part = inner if isinstance(inner, dict) else config
    rope = part.get("rope_parameters")
    if key == BASE and isinstance(rope, dict) and "rope_theta" in rope:
        return rope["rope_theta"]
    value = next((part[name] for name in NAMES_OF_KEYS[key] if part.get(name) is not None), None)
    return value if key != POSITIONS or rope_scaling_kind(value) else None


def does_config_differ(override: Override, stored: object) -> bool:
    """Does a config.json hold another scaling or number than the training set?"""
    if override.key != POSITIONS:
        return isinstance(stored, int | float) and stored != override.value
    factor = stored.get("factor") if isinstance(stored, dict) else None
    is_other_factor = (
        override.scaling_factor is not None
        and factor is not None
        and factor != override.scaling_factor
    )
    return rope_scaling_kind(stored) != override.kind or is_other_factor


def max_positions_of_config(config: Mapping[str, Any]) -> int | None:
    """How many positions a model knows, by its config.json."""
    return first_positive_text_model_setting(config, "max_position_embeddings")


def scaling_lines_for_config(override: Override, limit: int | None, known: int | None) -> str:
    """The lines for config.json that give a model the positions of the training; dots where the factor is not known."""
    if override.key != POSITIONS:
        return f'"{override.key}": {json.dumps(override.value)}'
    factor = override.scaling_factor
    if factor is None and limit is not None and known is not None:
        factor = float(math.ceil(limit / known))
    value: object = {"rope_type": override.kind, "factor": "..." if factor is None else factor}
    if isinstance(override.value, dict):
        value = override.value
    length = f', "max_position_embeddings": {int(known * factor)}' if known and factor else ""
    return f'"rope_scaling": {json.dumps(value)}{length}'
