"""Reads settings from config.json of a model, from its part for text if it has several parts.

Only what several rules ask for; nothing is checked here, a value of a wrong type counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GENERATING_CLASSES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


def first_set_text_model_setting(config: Mapping[str, Any], *names: str) -> Any:
    """The value of the first of these keys that is set, in the part for text if the model has
    several; None if none is.
    """
    for part in (config, config.get("text_config")):
        for name in names:
            if isinstance(part, Mapping) and part.get(name) is not None:
                return part[name]
    return None


def first_positive_text_model_setting(config: Mapping[str, Any], *names: str) -> int | None:
    """As `first_set_text_model_setting`, if it is a whole number above 0; else None."""
    value = first_set_text_model_setting(config, *names)
    # `type` and not isinstance: JSON's true is an int to Python.
    return value if type(value) is int and value > 0 else None


def model_classes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The class names in `architectures` of a config.json."""
    names = config.get("architectures")
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def has_text_output_head(config: Mapping[str, Any]) -> bool:
    """Is it the config of a model with an output head over the vocabulary?"""
    return any(name.endswith(GENERATING_CLASSES) for name in model_classes(config))
