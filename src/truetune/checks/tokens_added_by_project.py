"""Finds the tokens that scripts and settings add to a tokenizer: `tokenizer.add_tokens(...)`,
Axolotl's `tokens`.

A text that has them is meant to. Marks of the turns of published templates stay marks, whoever adds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.checks.source.evidence.added_tokens_new_to_model import added_tokens_unknown_to_model
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.settings.located_document import read_located_document
from truetune.source.find_source_files import find_source_files
from truetune.source.parsed_source_file import read_module

SETTINGS_SUFFIXES = (".yaml", ".yml", ".json")
TOKEN_KEYS = (
    ("tokens", "additional_special_tokens", "added_tokens_overrides")  # Axolotl
    + ("add_tokens", "add_special_tokens")  # LLaMA-Factory
    + ("new_special_tokens",)  # ms-swift
)
NAMES_TOKENS = re.compile("|".join(TOKEN_KEYS).encode())
TURN_MARK = re.compile(
    r"im_start|im_end|start_header_id|end_header_id|eot_id|start_of_turn|end_of_turn|INST"
    r"|^<\|(?:system|user|assistant|end)\|>$"
    r"|^</?s>$|^<(?:bos|eos|pad)>$|endoftext|begin_of_text|end_of_text"
)
"""Marks of published templates"""
FILES_OF_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
"""They hold the tokenizer's own tokens, those of its template among them"""
MAX_FILES = 50
"""Files of each kind that are read. Chosen by hand: a bound on time; projects have fewer"""
MAX_BYTES = 1 << 20
"""Bytes of a file of settings that is read. Chosen by hand: settings that people write are far
shorter, data are longer"""
MAX_DEPTH = 3
"""Levels of tables in which keys are looked for. Chosen by hand: the stacks keep these keys near the top"""
MAX_TOKENS = 2_000
"""Tokens of one list that are taken. Chosen by hand: a bound on memory; more would be a vocabulary"""


def tokens_added_by_project(sources: Iterable[str], named: Iterable[str]) -> frozenset[str]:
    """The tokens that a project adds, but for marks of published templates.

    Args:
        sources: Python files and notebooks, and folders of them.
        named: the paths of the check, among which files of settings are looked for.
    """
    tokens = {*_tokens_added_by_scripts(sources), *_tokens_added_by_settings(named)}
    return frozenset(token for token in tokens if token and not TURN_MARK.search(token))


def _tokens_added_by_scripts(sources: Iterable[str]) -> Iterator[str]:
    """What scripts add by calls."""
    for number, (_, file) in enumerate(find_source_files(list(sources))):
        if number >= MAX_FILES:
            return
        try:
            for added in added_tokens_unknown_to_model(read_module(file)):
                yield from added.names[:MAX_TOKENS]
        except TruetuneError:
            continue  # what can't be parsed is told where sources are judged


def _tokens_added_by_settings(named: Iterable[str]) -> Iterator[str]:
    """What files of settings add by the keys of their stacks."""
    for file in _settings_files(named):
        try:
            text = read_bytes_within_limit(file, SETTINGS)
            # Parsing costs a second where a file is large, such as one of rows; most name no token.
            if len(text) <= MAX_BYTES and NAMES_TOKENS.search(text):
                yield from _tokens_below_keys_that_add_them(read_located_document(file).value, 0)
        except (TruetuneError, OSError, InputLimitError):
            continue


def _settings_files(named: Iterable[str]) -> list[Path]:
    """The files of settings among paths, and in folders among them."""
    files: list[Path] = []
    for path in map(Path, named):
        try:
            files += sorted(path.iterdir()) if path.is_dir() else [path]
        except OSError:
            continue
    chosen = [
        file
        for file in files
        if file.suffix in SETTINGS_SUFFIXES
        and file.name not in FILES_OF_TOKENIZERS
        and file.is_file()
    ]
    return chosen[:MAX_FILES]


def _tokens_below_keys_that_add_them(value: Any, depth: int) -> Iterator[str]:
    """The tokens below the keys that add some."""
    if not isinstance(value, Mapping) or depth > MAX_DEPTH:
        return
    for key, inner in value.items():
        if key in TOKEN_KEYS:
            yield from _texts_of_value(inner)
        else:
            yield from _tokens_below_keys_that_add_them(inner, depth + 1)


def _texts_of_value(value: Any) -> Iterator[str]:
    """The texts of a list, of a mapping, or of one text with commas."""
    if isinstance(value, str):
        yield from (part.strip() for part in value.split(",")[:MAX_TOKENS])
    elif isinstance(value, list | Mapping):
        parts = list(value.values() if isinstance(value, Mapping) else value)[:MAX_TOKENS]
        yield from (part for part in parts if isinstance(part, str))
