"""The form of the prompts that settings of a training beside a Modelfile say: `type: alpaca`, `template: qwen`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.config.evidence.template_marks import MARKERS, first_mark
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.yaml_reader import parse_yaml

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


def trained_format_beside(folder: Path) -> TrainedFormat | None:
    """The one form that the settings in a folder, or in the one above, train; None where none is said, or several."""
    found = list(_formats_in(folder)) or list(_formats_in(folder.parent))
    marks = {one.mark for one in found}
    return found[0] if len(marks) == 1 else None


def _formats_in(folder: Path) -> Iterator[TrainedFormat]:
    """The forms that the settings of a folder say."""
    for path in sorted(folder.glob("*.y*ml"))[:MAX_FILES]:
        try:
            document = parse_yaml(path.read_text(encoding="utf-8"), SETTINGS).value
        except (OSError, ValueError, InputLimitError):
            continue
        if isinstance(document, dict):
            for key, name in _named_formats(document):
                mark = MARKERS.get(name)
                if mark is not None and name not in NOT_SAID:
                    yield TrainedFormat(path, f"{key}: {name}", first_mark(mark))


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
