"""Reads truetune's own settings from truetune.yaml or pyproject.toml.

A file that is named wins over truetune.yaml in the folder, and that over the table in pyproject.toml; they are never
mixed, so that one place says what a run does. Relative paths stand against the file, not against the folder in which
the command is typed: the same file means the same run from everywhere.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from truetune.errors import SpecError
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.parse_toml_within_limits import parse_toml
from truetune.parsing.parse_yaml_within_limits import parse_yaml
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.settings.advise_unknown_setting import SETTING_GROUPS, advise_unknown_setting
from truetune.settings.run_spec import RunSpec
from truetune.settings.suggest_spelling import did_you_mean_path

CONFIG_NAME = "truetune.yaml"
PROJECT_NAME = "pyproject.toml"


def find_own_settings_and_file(
    config: str | None, folder: Path
) -> tuple[dict[str, Any], Path | None]:
    """The settings that a file gives, and the file: `config`, otherwise truetune.yaml, otherwise
    pyproject.toml.

    Raises SpecError for a file that is missing, broken, or holds a setting that is not understood.
    """
    if config is not None:
        path = Path(config)
    elif (folder / CONFIG_NAME).is_file():
        path = folder / CONFIG_NAME
    elif (folder / PROJECT_NAME).is_file() and _read_tool_table(folder / PROJECT_NAME) is not None:
        path = folder / PROJECT_NAME
    else:
        return {}, None
    value = _read_tool_table(path) if path.suffix == ".toml" else _read_yaml_settings(path) or {}
    if value is None:
        raise SpecError(f"{path}: there is no [tool.truetune] in it")
    settings = _resolve_paths_and_default_tokenizer(
        _normalize_setting_names(value, path), path.parent
    )
    validate_settings(settings, str(path))
    return settings, path


def validate_settings(settings: Mapping[str, Any], where: str) -> RunSpec:
    """The settings as a RunSpec. Raises SpecError that says which setting is wrong, and why."""
    try:
        return RunSpec.model_validate(
            {name: _paths_as_strings(value) for name, value in settings.items()}
        )
    except ValidationError as error:
        problems = [
            _describe_validation_error(p["type"], p["msg"], list(map(str, p["loc"])), p["input"])
            for p in error.errors()
        ]
        raise SpecError("\n".join(f"{where}: {problem}" for problem in problems)) from None


def merge_settings(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in `under`, with those in `over` in front; groups of settings are merged."""
    made = dict(under)
    for name, value in over.items():
        below = made.get(name)
        made[name] = (
            merge_settings(below, value)
            if isinstance(below, Mapping) and isinstance(value, Mapping)
            else value
        )
    return made


def _paths_as_strings(value: Any) -> Any:
    """Paths as strings, alone or in a list."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return (
        [_paths_as_strings(item) for item in value] if isinstance(value, (list, tuple)) else value
    )


def _describe_validation_error(kind: str, message: str, place: list[str], found: Any) -> str:
    """A validation error as a phrase, with what may have been meant."""
    name = ".".join(place)
    if kind != "extra_forbidden":
        return f"{name}: {message[:1].lower()}{message[1:]} (found {reprlib.repr(found)})"
    return f"there is no setting {name}; {advise_unknown_setting(place, found)}"


def _read_settings_text(path: Path) -> str:
    """The text of a settings file. Raises SpecError."""
    try:
        return read_bytes_within_limit(path, SETTINGS).decode("utf-8-sig")
    except OSError as error:
        raise SpecError(
            f"{path}: {error.strerror}{'' if path.exists() else did_you_mean_path(path)}"
        ) from None
    except InputLimitError as error:
        raise SpecError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: not UTF-8; save it as UTF-8") from None


def _read_yaml_settings(path: Path) -> Any:
    """The content of a YAML file. Raises SpecError."""
    text = _read_settings_text(path)
    try:
        return parse_yaml(text).value
    except ValueError as error:
        raise SpecError(f"{path}: not YAML: {' '.join(str(error).split())}") from None


def _read_tool_table(path: Path) -> Any:
    """The table [tool.truetune] of a pyproject.toml; None if there is none."""
    text = _read_settings_text(path)
    try:
        tool = parse_toml(text).get("tool", {})
    except ValueError as error:
        raise SpecError(f"{path}: not TOML: {error}") from None
    return tool.get("truetune") if isinstance(tool, dict) else None


def _normalize_setting_names(value: Any, path: Path) -> dict[str, Any]:
    """Settings by the names of RunSpec's fields (`max-length` is `max_length`); a key without a value is not set."""
    if not isinstance(value, dict):
        raise SpecError(f"{path}: expected settings by name, found {reprlib.repr(value)}")
    settings: dict[str, Any] = {}
    for key, item in value.items():
        name = str(key).replace("-", "_")
        if name in settings:
            raise SpecError(f"{path}: {name} is given twice")
        if item is not None:
            settings[name] = (
                _normalize_setting_names(item, path)
                if (name,) in SETTING_GROUPS and isinstance(item, dict)
                else item
            )
    return settings


def _resolve_paths_and_default_tokenizer(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The settings with relative paths resolved against the file's folder; the tokenizer is the
    model's if none is named.
    """
    for key in ("data", "eval_data"):
        names = settings.get(key)
        if isinstance(names, str):
            settings[key] = _join_path_unless_url(folder, names)
        elif isinstance(names, list):
            settings[key] = [
                _join_path_unless_url(folder, name) if isinstance(name, str) else name
                for name in names
            ]
    for key in ("tokenizer", "model", "template"):
        value = settings.get(key)
        if isinstance(value, str) and Path(path := _join_path_unless_url(folder, value)).exists():
            settings[key] = path
    _resolve_files_of_rewards(settings.get("training"), folder)
    model = settings.get("model")
    if isinstance(model, str) and (Path(model).expanduser() / "tokenizer.json").is_file():
        settings.setdefault("tokenizer", model)
    return settings


def _resolve_files_of_rewards(training: Any, folder: Path) -> None:
    """Resolve the files of reward functions (`rewards.py:correct`) against the settings' folder."""
    names = training.get("rewards") if isinstance(training, dict) else None
    if isinstance(names, str):
        names = [names]
    if isinstance(names, list):
        training["rewards"] = [
            _join_path_unless_url(folder, name)
            if isinstance(name, str) and ".py:" in name and not name.startswith("agrees:")
            else name
            for name in names
        ]


def _join_path_unless_url(folder: Path, name: str) -> str:
    """A path joined to a folder; a URL as it is."""
    return name if "://" in name else str(folder / Path(name).expanduser())
