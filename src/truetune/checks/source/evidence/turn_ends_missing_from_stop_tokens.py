"""Finds the token that a model's chat template writes at the end of turns, where the model's files
let no engine stop at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.source.evidence.model_folder_settings import read_folder_settings
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.read_files_within_limits import read_bytes_within_limit

TURN_ENDS = (
    ("<|im_start|>", "<|im_end|>"),
    ("<start_of_turn>", "<end_of_turn>"),
    ("<|start_header_id|>", "<|eot_id|>"),
    ("<|turn>", "<turn|>"),
    ("<|assistant|>", "<|end|>"),
)
"""What opens a turn in published templates -> what ends it"""


class UnheededTurnEnd(NamedTuple):
    """The end of turns in a model's folder, at which nothing stops."""

    token: str
    id: int
    stops: list[int]
    file: Path


def unheeded_turn_end(folder: Path) -> UnheededTurnEnd | None:
    """The end of turns at which a folder's files let no engine stop; None where they do, or it is
    not known.
    """
    tokenizer = read_folder_settings(folder / "tokenizer_config.json")
    end = _turn_end_token(tokenizer, folder)
    end_id = _id_of_token(tokenizer, end) if end is not None else None
    if end is None or end_id is None:
        return None
    for name in ("generation_config.json", "config.json"):
        value = read_folder_settings(folder / name).get("eos_token_id")
        given = value if isinstance(value, list) else [value]
        stops = [one for one in given if isinstance(one, int)]
        if stops and len(stops) == len(given):
            return None if end_id in stops else UnheededTurnEnd(end, end_id, stops, folder / name)
    return None


def _turn_end_token(tokenizer: Mapping[str, Any], folder: Path) -> str | None:
    """The token that the chat template writes at the end of a turn; None where it is of no known
    kind.
    """
    template = tokenizer.get("chat_template")
    if template is None:
        try:
            template = read_bytes_within_limit(folder / "chat_template.jinja", MODEL_FILE).decode(
                "utf-8"
            )
        except (OSError, ValueError):
            return None
    if not isinstance(template, str):
        return None
    ends = [end for opens, end in TURN_ENDS if opens in template and end in template]
    return ends[0] if len(ends) == 1 else None


def _id_of_token(tokenizer: Mapping[str, Any], token: str) -> int | None:
    """The id of an added token by the tokenizer's settings."""
    added = tokenizer.get("added_tokens_decoder")
    for number, entry in added.items() if isinstance(added, dict) else ():
        if isinstance(entry, dict) and entry.get("content") == token and number.isdecimal():
            return int(number)
    return None
