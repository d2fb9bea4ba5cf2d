"""What config.json says about the shape of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


def setting(config: Mapping[str, Any], *names: str) -> Any:
    """The first of these keys that is set; in models of several parts, of the part for text."""
    for part in (config, config.get("text_config")):
        for name in names:
            if isinstance(part, Mapping) and part.get(name) is not None:
                return part[name]
    return None


def number(config: Mapping[str, Any], *names: str) -> int | None:
    """Like `setting`, where it is a whole number above 0."""
    value = setting(config, *names)
    return value if type(value) is int and value > 0 else None


def architectures(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The class names in config.json"""
    names = config.get("architectures")
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def makes_text(config: Mapping[str, Any]) -> bool:
    """Is it a model with an output head over the vocabulary?"""
    return any(name.endswith(TEXT) for name in architectures(config))
