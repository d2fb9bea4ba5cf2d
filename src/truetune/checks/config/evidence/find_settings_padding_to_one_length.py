"""Finds settings that pad every row to one length."""

from __future__ import annotations

from typing import NamedTuple

from truetune.settings.config import Config

SWITCHES = ("pad_to_sequence_len", "pad_to_max_length")


MULTIPLE = "pad_to_multiple_of"


MIN_LENGTH = 512
"""Tokens. Chosen by hand: pads up to a shorter length cost little beside the rest of a step"""


class _Padding(NamedTuple):
    """What pads each row to which length."""

    key: str
    length: int


def find_padding_to_a_length(config: Config) -> _Padding | None:
    """The setting that pads each row, and to which length; None where none does, or rows are joined."""
    raw = config.raw
    # Compiled models are padded to one length so that they are compiled once.
    if config.spec.training.packing or raw.get("torch_compile"):
        return None
    for key in SWITCHES:
        if raw.get(key) is True and config.limit and config.limit >= MIN_LENGTH:
            return _Padding(key, config.limit)
    multiple = raw.get(MULTIPLE)
    if isinstance(multiple, int) and multiple >= MIN_LENGTH:
        return _Padding(MULTIPLE, multiple)
    return None
