"""Values of settings, as rules on settings compare and show them."""

from __future__ import annotations

from typing import Any

from truetune.settings.config import Config


def value_of(config: Config, name: str) -> Any:
    """The value that takes effect of a field of RunSpec (`max_length`, `training.lora.r`), or of a key of the file.

    None where nothing sets it, and where no default is known.
    """
    value: Any = config.spec
    for part in name.split("."):
        if not hasattr(value, part):
            return config.raw.get(name)
        value = getattr(value, part)
    return value


def name_of(config: Config, name: str) -> str:
    """What the file calls a field; the field's own name where the file's value means something more."""
    # Where the file's own value is another one (a batch per device and not per step), its name would mislead.
    if name in config.places and config.raw.get(config.places[name].key) == value_of(config, name):
        return config.places[name].key
    return name.removeprefix("training.")


def is_set(config: Config, name: str) -> bool:
    """Does a setting ask for something?"""
    return value_of(config, name) not in (None, False, "", (), {}, [])


def is_unknown(config: Config, name: str) -> bool:
    """Is it set to something that can't be told without running the program?"""
    return (
        name in config.places
        and value_of(config, name) is None
        # Only code computes values: a YAML file that sets nothing sets nothing.
        and config.path.endswith((".py", ".ipynb"))
    )


def format_setting(config: Config, name: str) -> str:
    """`name: value`"""
    value = value_of(config, name)
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, float):
        text = f"{value:g}"
    elif isinstance(value, (tuple, list)):
        text = ", ".join(map(str, value)) or "none"
    else:
        text = "not set" if value is None or value == "" else str(value)
    return f"{name_of(config, name)}: {text}"
