"""Reads truetune's own settings as a Config with the places of its keys.

The same record as for other stacks, so that every rule on settings holds for truetune's own file too.
"""

from __future__ import annotations

from pathlib import Path

from truetune.package import __version__
from truetune.settings.config import Config, SettingLocation
from truetune.settings.located_document import LocatedDocument
from truetune.settings.read_truetune_settings import find_own_settings_and_file, validate_settings
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.config_draft import location_of_keys


def truetune_keys() -> frozenset[str]:
    """All settings of truetune."""
    return frozenset(RunSpec.model_fields)


def read_truetune_config(document: LocatedDocument) -> Config:
    """The settings in a truetune.yaml as a Config. Raises SpecError."""
    settings, _ = find_own_settings_and_file(document.path, Path(document.path).parent)
    spec = validate_settings(settings, document.path)
    places: dict[str, SettingLocation] = {}
    for keys in document.spots:
        if not any(isinstance(key, int) for key in keys):
            places[".".join(str(key).replace("-", "_") for key in keys)] = location_of_keys(
                document, keys
            )
    raw = (
        {str(key): value for key, value in document.value.items()}
        if isinstance(document.value, dict)
        else {}
    )
    return Config(
        stack="truetune",
        version=__version__,
        path=document.path,
        spec=spec,
        places=places,
        raw=raw,
        text=document.text,
        limit=spec.max_length,
    )
