"""Every published template at hand, by name."""

from __future__ import annotations

from tests import parts


def all_templates() -> dict[str, str]:
    """Templates of TRL's package, of llama.cpp's sdist, and of the tokenizer folders."""
    found = {}
    for origin in ("trl", "llama.cpp"):
        for path in parts.templates(origin):
            found[f"{origin}/{path.stem}"] = path.read_text(encoding="utf-8")
    for family in parts.FAMILIES:
        if parts.available(family):
            for name in ("chat_template", "training_chat_template"):
                path = parts.folder(family) / f"{name}.jinja"
                if path.is_file():
                    found[f"{family}/{name}"] = path.read_text(encoding="utf-8")
    return found
