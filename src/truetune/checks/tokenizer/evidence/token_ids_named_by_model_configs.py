"""The token ids that generation_config.json and config.json name, and who reads each.

Both files give tokens by number, the tokenizer gives them by text, and nobody compares the two: a number that was
written for another vocabulary is as good a number as any. `TOKEN_ID_KEYS` is the table of these facts; it holds what
each id is for, and what follows where it is another token than its name says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from truetune.render.tokenizer import Tokenizer
from truetune.settings.run_spec import Severity

GENERATION_FILE = "generation_config.json"
MODEL_FILE = "config.json"


@dataclass(frozen=True, slots=True)
class TokenIdKey:
    """A setting that holds the id of a token, or several ids."""

    name: str
    """`eos_token_id`"""
    consequence: str
    """What happens where it is another token than its name says"""
    severity: Severity


TOKEN_ID_KEYS = (
    TokenIdKey("eos_token_id", "answers end wherever that token occurs, not at their end", "error"),
    TokenIdKey("bos_token_id", "generation without a prompt begins with that token", "warning"),
    TokenIdKey(
        "pad_token_id",
        "answers that end before others of their batch are padded with it",
        "warning",
    ),
    TokenIdKey("decoder_start_token_id", "each answer begins with that token", "error"),
    TokenIdKey("forced_bos_token_id", "each answer begins with that token", "error"),
    TokenIdKey(
        "forced_eos_token_id", "an answer that reaches its limit ends in that token", "warning"
    ),
)


@dataclass(frozen=True, slots=True)
class TokenIdStatement:
    """One id that one file gives."""

    file: str
    key: TokenIdKey
    id: int


def list_token_id_statements(tokenizer: Tokenizer) -> Iterator[TokenIdStatement]:
    """All ids of special tokens that the two files give, generation_config.json first."""
    files: tuple[tuple[str, dict[str, Any]], ...] = (
        (GENERATION_FILE, tokenizer.generation_config or {}),
        (MODEL_FILE, tokenizer.model_config),
    )
    for file, settings in files:
        for key in TOKEN_ID_KEYS:
            for id in ids_in_value(settings.get(key.name)):
                yield TokenIdStatement(file, key, id)


def ids_in_value(value: Any) -> list[int]:
    """The ids that a setting gives: a number, or a list of numbers. -1 is some tools' way to say none."""
    values = value if isinstance(value, list) else [value]
    return [id for id in values if isinstance(id, int) and not isinstance(id, bool) and id >= 0]
