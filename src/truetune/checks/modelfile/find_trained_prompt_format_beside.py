"""Finds the prompt format that a training beside a server's file uses: `type: alpaca`, `template:
qwen`.

Settings and commands that train are read. Where they leave the form to the tokenizer, the published name of a chat
model says it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.config.evidence.template_marks_before_questions import (
    MARKERS,
    first_mark_without_role,
    mark_before_question_of_chat_model,
)
from truetune.checks.find_training_stages_of_files import stage_of_config
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.parse_yaml_within_limits import parse_yaml
from truetune.parsing.shell_commands import is_command_file, read_command_file
from truetune.settings.config import Config
from truetune.settings.stacks.settings_of_stack_commands import (
    configs_of_commands_without_settings_file,
)

MAX_FILES = 30
"""Settings files of a folder that are read"""
NOT_SAID = ("tokenizer_default", "tokenizer_default_fallback_chatml", "jinja", "default", "empty")
"""Values that leave the form to the tokenizer, or to a file"""


class TrainedFormat(NamedTuple):
    """How a question is written in training, as settings say."""

    path: Path
    setting: str
    """As it is written: `type: alpaca`"""
    mark: str
    """What stands before a question"""


def find_trained_format_beside(folder: Path) -> TrainedFormat | None:
    """The one form that the settings in a folder, or in the one above, train; None where none is said, or several."""
    trained_formats = list(_formats_in(folder)) or list(_formats_in(folder.parent))
    marks = {one.mark for one in trained_formats}
    return trained_formats[0] if len(marks) == 1 else None


def _formats_in(folder: Path) -> Iterator[TrainedFormat]:
    """The forms that the settings and the commands of a folder say."""
    yield from _formats_of_settings(folder)
    yield from _formats_of_commands(folder)


def _formats_of_settings(folder: Path) -> Iterator[TrainedFormat]:
    """The forms that the files of settings in a folder say."""
    for path in sorted(folder.glob("*.y*ml"))[:MAX_FILES]:
        try:
            document = parse_yaml(path.read_text(encoding="utf-8"), SETTINGS).value
        except (OSError, ValueError, InputLimitError):
            continue
        if isinstance(document, dict):
            yield from _formats_of_document(path, document)


def _formats_of_document(path: Path, document: dict[str, Any]) -> Iterator[TrainedFormat]:
    """The forms that settings name; where they leave them to the tokenizer, that of the published chat model."""
    named = list(_named_formats(document))
    for key, name in named:
        mark = MARKERS.get(name)
        if mark is not None and name not in NOT_SAID:
            yield TrainedFormat(path, f"{key}: {name}", first_mark_without_role(mark))
    if named and all(name in (*NOT_SAID, "None") for _, name in named):
        yield from _format_of_model(path, document)


def _formats_of_commands(folder: Path) -> Iterator[TrainedFormat]:
    """The forms that the commands of a folder train by."""
    for path in sorted(filter(is_command_file, folder.glob("*")))[:MAX_FILES]:
        try:
            configs = configs_of_commands_without_settings_file(read_command_file(path))
        except (OSError, ValueError, TruetuneError):
            continue
        for config in configs:
            yield from _format_of_command(path, config)


def _format_of_model(path: Path, document: dict[str, Any]) -> Iterator[TrainedFormat]:
    """The form that the tokenizer of a published chat model brings, by the model's name."""
    for key in ("base_model", "model_name_or_path", "model"):
        name = document.get(key)
        mark = mark_before_question_of_chat_model(name) if isinstance(name, str) else None
        if mark is not None:
            yield TrainedFormat(path, f"{key}: {name}", mark)
            return


def _format_of_command(path: Path, config: Config) -> Iterator[TrainedFormat]:
    """The form that a command trains by: its template, else that of the published chat model that it names."""
    if stage_of_config(config) is None:
        return
    name = config.raw.get("template")
    if isinstance(name, str) and name not in NOT_SAID:
        mark = MARKERS.get(name)
        if mark is not None:
            yield TrainedFormat(path, f"template: {name}", first_mark_without_role(mark))
        return
    yield from _format_of_model(path, dict(config.raw))


def _named_formats(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(setting, name) of the forms that a document names."""
    data = document.get("datasets")
    if isinstance(data, list):  # Axolotl
        for one in data:
            kind = one.get("type") if isinstance(one, dict) else None
            base = kind.split(":")[0].split(".")[0] if isinstance(kind, str) else ""
            if base == "chat_template":
                own = one.get("chat_template") or document.get("chat_template")
                yield "chat_template", str(own)
            elif base:
                yield "type", base
    elif "model_name_or_path" in document and isinstance(document.get("template"), str):
        yield "template", document["template"]  # LLaMA-Factory
