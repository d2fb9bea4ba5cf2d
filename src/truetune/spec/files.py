"""Settings from truetune.yaml and pyproject.toml."""

from __future__ import annotations

import difflib
import glob
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from truetune.errors import SpecError
from truetune.spec.run import RunSpec

CONFIG = "truetune.yaml"


def find_settings(config: str | None, folder: Path) -> tuple[dict[str, Any], Path | None]:
    """The settings of a run that files give, and the file: `config`, else truetune.yaml, else pyproject.toml.

    Raises SpecError for a file that is missing or broken.
    """
    if config is not None:
        return _yaml(Path(config)), Path(config)
    if (folder / CONFIG).is_file():
        return _yaml(folder / CONFIG), folder / CONFIG
    project = folder / "pyproject.toml"
    if project.is_file():
        try:
            tables = tomllib.loads(project.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SpecError(f"{project}: not TOML: {error}") from None
        table = tables.get("tool", {}).get("truetune")
        if table is not None:
            return _resolved(_keys(table, project), project.parent), project
    return {}, None


def spec_of(settings: Mapping[str, Any], where: str) -> RunSpec:
    """Settings as a RunSpec. Raises SpecError that says which setting is wrong, and why."""
    try:
        return RunSpec.model_validate(dict(settings))
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            name = ".".join(map(str, problem["loc"]))
            near = _near(name) if problem["type"] == "extra_forbidden" else ""
            lines.append(f"{where}: {name}: {problem['msg']}{near} (found {problem['input']!r})")
        raise SpecError("\n".join(lines)) from None


def _yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        value = yaml.safe_load(text)
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: not UTF-8; save it as UTF-8") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    return _resolved(_keys({} if value is None else value, path), path.parent)


def _keys(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SpecError(f"{path}: expected settings by name, found {type(value).__name__}")
    settings = {str(key).replace("-", "_"): item for key, item in value.items()}
    for key in settings:
        if key not in RunSpec.model_fields:
            raise SpecError(f"{path}: there is no setting {key}{_near(key)}")
    return settings


def _near(name: str) -> str:
    near = difflib.get_close_matches(name, RunSpec.model_fields, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(RunSpec.model_fields)}"


def _resolved(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Relative paths stand against the file's folder."""
    for key in ("data", "eval_data"):
        if key in settings:
            value = settings[key]
            names = [value] if isinstance(value, str) else value
            if isinstance(names, list):
                settings[key] = [str(folder / name) if isinstance(name, str) else name for name in names]
    for key in ("tokenizer", "model", "template"):
        value = settings.get(key)
        if isinstance(value, str) and ((folder / value).exists() or glob.has_magic(value)):
            settings[key] = str(folder / value)
    return settings
