"""Puts the tokenizer of the base into the model's folder, with its template as a file of its own."""

from __future__ import annotations

import json
from pathlib import Path

from bench.starts.material import link_tokenizer


def make(target: Path) -> None:
    """Put them in place."""
    folder = target / "support-7b"
    link_tokenizer("qwen2.5-base", folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "chat_template.jinja").write_text(settings["chat_template"], encoding="utf-8")
