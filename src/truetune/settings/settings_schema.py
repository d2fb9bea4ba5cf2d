"""Builds the JSON schema of truetune.yaml, for editors.

Pydantic makes it from `RunSpec`; what is changed here are the short forms that `RunSpec` takes before it validates (one
path for a list of them, `learn: last` for `learn: {what: last}`, a trainer's name for its arguments), which pydantic
cannot know. Without them an editor would mark right files as wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.settings.row_formats import SCRIPT_SUFFIXES, format_names
from truetune.settings.run_spec import RunSpec

SCHEMA_NAME = "truetune.schema.json"
"""The file that `truetune init` writes beside the settings"""
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_TITLE = "The settings of truetune"
ONE_OR_MANY = ("data", "eval_data", "select", "ignore")


class _SchemaWithoutTitles(GenerateJsonSchema):
    """Generates a JSON schema without titles of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """False: fields get no title in the schema."""
        return False


def build_settings_schema() -> dict[str, Any]:
    """The JSON schema of truetune.yaml, with the meaning of each setting. Names are spelled with
    underscores.
    """
    made = RunSpec.model_json_schema(schema_generator=_SchemaWithoutTitles)
    settings = made["properties"]
    for name in ONE_OR_MANY:
        many = {"type": settings[name].pop("type"), "items": settings[name].pop("items")}
        settings[name]["anyOf"] = [{"type": "string"}, many]
    rewards = made["$defs"]["Training"]["properties"]["rewards"]
    many = {"type": rewards.pop("type"), "items": rewards.pop("items")}
    rewards["anyOf"] = [{"type": "string"}, many]
    what = made["$defs"]["Learn"]["properties"]["what"]["enum"]
    settings["learn"] = {
        "anyOf": [{"enum": what}, {"$ref": "#/$defs/Learn"}],
        **_without_key(settings["learn"], "$ref"),
    }
    named = next(part for part in settings["trained_by"]["anyOf"] if "enum" in part)
    settings["trainer"] = {
        "anyOf": [named, {"type": "object"}],
        "description": settings["trainer"]["description"],
    }
    name = next(part for part in settings["format"]["anyOf"] if part["type"] == "string")
    del name["type"]
    endings = "|".join(suffix.lstrip(".") for suffix in SCRIPT_SUFFIXES)
    name["anyOf"] = [
        {"enum": list(format_names())},
        {"type": "string", "pattern": rf"\.({endings})$"},
    ]
    for setting in settings.values():
        if isinstance(setting.get("default"), dict):
            del setting["default"]
    said: dict[str, Any] = _remove_line_breaks_in_descriptions({**made, "title": SCHEMA_TITLE})
    return {"$schema": SCHEMA_DIALECT, **said}


def is_truetune_settings_schema_file(path: Path) -> bool:
    """Does this file hold truetune's schema of settings, of any version? Raises OSError, ValueError."""
    value = parse_json(path.read_bytes(), RESULT)
    return isinstance(value, dict) and (value.get("$schema"), value.get("title")) == (
        SCHEMA_DIALECT,
        SCHEMA_TITLE,
    )


def settings_schema_text() -> str:
    """The JSON schema as the text of a file."""
    return json.dumps(build_settings_schema(), indent=2, ensure_ascii=False) + "\n"


def _without_key(values: dict[str, Any], name: str) -> dict[str, Any]:
    """A dictionary without one of its keys."""
    return {key: value for key, value in values.items() if key != name}


def _remove_line_breaks_in_descriptions(value: Any) -> Any:
    """The schema with the line breaks of the source taken out of its descriptions."""
    if isinstance(value, list):
        return [_remove_line_breaks_in_descriptions(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: (
            " ".join(item.split())
            if key == "description" and isinstance(item, str)
            else _remove_line_breaks_in_descriptions(item)
        )
        for key, item in value.items()
    }
