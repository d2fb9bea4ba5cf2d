"""Reads and formats values of settings, as rules on settings compare and show them."""

from __future__ import annotations

from typing import Any

from truetune.settings.config import Config


def effective_value(config: Config, name: str) -> Any:
    """The value that takes effect of a field of RunSpec (`max_length`, `training.lora.r`), or of a key of the file.

    None where nothing sets it, and where no default is known.
    """
    value: Any = config.spec
    for part in name.split("."):
        if not hasattr(value, part):
            return config.raw.get(name)
        value = getattr(value, part)
    return value


def displayed_setting_name(config: Config, name: str) -> str:
    """What the file calls a field; the field's own name where the file's value means something more."""
    # Where the file's own value is another one (a batch per device and not per step), its name would mislead.
    if name in config.places and config.raw.get(config.places[name].key) == effective_value(
        config, name
    ):
        return config.places[name].key
    return name.removeprefix("training.")


def is_setting_on(config: Config, name: str) -> bool:
    """Does a setting ask for something?"""
    return effective_value(config, name) not in (None, False, "", (), {}, [])


def is_setting_unknown(config: Config, name: str) -> bool:
    """Is a setting set to something that can't be told without running the program?"""
    return (
        name in config.places
        and effective_value(config, name) is None
        # Only code computes values: a YAML file that sets nothing sets nothing.
        and config.path.endswith((".py", ".ipynb"))
    )


def format_setting(config: Config, name: str) -> str:
    """A setting with its value, as text: `name: value`."""
    value = effective_value(config, name)
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, float):
        text = f"{value:g}"
    elif isinstance(value, (tuple, list)):
        text = ", ".join(map(str, value)) or "none"
    else:
        text = "not set" if value is None or value == "" else str(value)
    return f"{displayed_setting_name(config, name)}: {text}"
