"""Finds the DeepSpeed settings that a run's own settings name: a table in place, or a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.findings import Case
from truetune.checks.read_settings_in_launch_files import read_document_in_folder_or_parents
from truetune.settings.config import Config
from truetune.settings.located_document import LocatedDocument

AUTO = "auto"
"""The Trainer puts its own value in"""


class DeepspeedSettings(NamedTuple):
    """DeepSpeed's settings of a run, and the file that holds them."""

    value: Mapping[str, Any]
    document: LocatedDocument | None
    """None where they are a table of the run's own settings"""
    config: Config

    @property
    def name(self) -> str:
        """How a message calls them: the name of the file."""
        return Path(self.document.path if self.document is not None else self.config.path).name

    def get(self, *way: str) -> Any:
        """The value at a path of keys; None where it is not set, or is "auto"."""
        value: Any = self.value
        for key in way:
            value = value.get(key) if isinstance(value, Mapping) else None
        return None if value == AUTO else value

    def case(self, *way: str) -> Case:
        """A case for a message: the setting at its place."""
        text = f"{'.'.join(way)}: {_value_with_lowercase_bool(self.get(*way))}"
        if self.document is None:
            return setting_case(self.config, text, "deepspeed")
        spot = self.document.position_of_key(*way)
        # A file of one line has no positions: its first line is shown.
        return Case(text, file=self.document.path, line=spot.line if spot is not None else 1)


def deepspeed_settings_of_run(config: Config) -> DeepspeedSettings | None:
    """The DeepSpeed settings that a run names; None where it names none, or they can't be read."""
    named = config.raw.get("deepspeed")
    if isinstance(named, Mapping):
        return DeepspeedSettings(named, None, config)
    if not isinstance(named, str):
        return None
    document = read_document_in_folder_or_parents(Path(config.path).parent, named)
    if document is None or not isinstance(document.value, Mapping):
        return None
    return DeepspeedSettings(document.value, document, config)


def _value_with_lowercase_bool(value: object) -> str:
    """A value as text, True and False as JSON spells them."""
    return str(value).lower() if isinstance(value, bool) else str(value)
