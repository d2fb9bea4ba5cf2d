"""Whether the tokenizer that settings name is on this machine, so that rows are judged by their tokens."""

from __future__ import annotations

from truetune.errors import TruetuneError
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.settings.config import Config


def has_local_tokenizer(config: Config) -> bool:
    """Is the tokenizer of the settings on this machine?"""
    name = config.spec.tokenizer
    try:
        return name is not None and (find_tokenizer_folder(name) / "tokenizer.json").is_file()
    except (TruetuneError, OSError, ValueError):
        return False
