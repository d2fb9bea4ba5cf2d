"""Settings of config.json, which a model of several parts (text, images) keeps one level deeper.

Only what several rules ask for; nothing is checked here, a value of a wrong type counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GENERATING_CLASSES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


def text_model_setting(config: Mapping[str, Any], *names: str) -> Any:
    """The first of these keys that is set; in models of several parts, of the part for text. None: none is."""
    for part in (config, config.get("text_config")):
        for name in names:
            if isinstance(part, Mapping) and part.get(name) is not None:
                return part[name]
    return None


def positive_text_model_setting(config: Mapping[str, Any], *names: str) -> int | None:
    """Like `text_model_setting`, where it is a whole number above 0."""
    value = text_model_setting(config, *names)
    # `type` and not isinstance: JSON's true is an int to Python.
    return value if type(value) is int and value > 0 else None


def model_classes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The class names in `architectures`."""
    names = config.get("architectures")
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def has_text_output_head(config: Mapping[str, Any]) -> bool:
    """Is it a model with an output head over the vocabulary?"""
    return any(name.endswith(GENERATING_CLASSES) for name in model_classes(config))
