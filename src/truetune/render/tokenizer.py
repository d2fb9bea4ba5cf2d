"""The facts about a tokenizer folder, read without transformers.

Ids are those of `tokenizer.json`. transformers 5 rebuilds the pre-tokenizer of some classes (`LlamaTokenizer`) and
then gives other ids for text that begins with white space; the published ids are those of the file.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from truetune.errors import TokenizerError
from truetune.render.folder import locate, read_json, read_templates
from truetune.render.weights import embedding_rows

NAMES = ("bos", "eos", "pad", "unk")


class Special(NamedTuple):
    """A token with its id."""

    token: str
    id: int


class Stop(NamedTuple):
    """A token that ends a turn, and who says so."""

    token: str
    id: int
    origins: tuple[str, ...]
    """tokenizer (eos_token), generation_config, config, template"""


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer folder."""

    folder: Path
    backend: tokenizers.Tokenizer
    config: dict[str, Any]
    """tokenizer_config.json"""
    model_config: dict[str, Any]
    """config.json; empty where there is none"""
    generation_config: dict[str, Any] | None
    """generation_config.json; None where there is none"""
    templates: dict[str, str]
    """By name; the only one of a folder is `default`."""
    special: dict[str, Special]
    """bos, eos, pad, unk: those that are set."""
    adds_bos: bool
    """Does a plain encode write BOS?"""
    adds_eos: bool
    padding_side: str
    control: frozenset[int]
    """Ids of the added tokens that are special."""
    vocabulary: int
    """Highest id in use, plus one."""
    embedding_rows: int | None
    """Of the weights, else of config.json; None where neither is at hand."""
    truncation: dict[str, Any] | None
    """The truncation that tokenizer.json carries; it is switched off in `backend`."""
    padding: dict[str, Any] | None
    """Likewise the padding."""
    weights: Path
    """The folder of config.json and the weights."""


def load(name: str, *, model: str | None = None) -> Tokenizer:
    """Read a tokenizer folder, a tokenizer.json, or a model of the local hub cache.

    `model` is the folder of config.json and the weights, where it is another. Raises TokenizerError.
    """
    folder = locate(name)
    weights = locate(model) if model else folder
    config = read_json(folder / "tokenizer_config.json") or {}
    backend = _backend(folder)
    truncation, padding = backend.truncation, backend.padding
    backend.no_truncation()
    backend.no_padding()
    added = backend.get_added_tokens_decoder()
    special = dict(_special(folder, config, backend))
    model_config = read_json(weights / "config.json") or {}
    ids = backend.encode("x", add_special_tokens=True).ids
    return Tokenizer(
        folder=folder,
        backend=backend,
        config=config,
        model_config=model_config,
        generation_config=read_json(weights / "generation_config.json"),
        templates=read_templates(folder, config),
        special=special,
        adds_bos="bos" in special and ids[:1] == [special["bos"].id],
        adds_eos="eos" in special and ids[-1:] == [special["eos"].id],
        padding_side=str(config.get("padding_side", "right")),
        control=frozenset(id for id, token in added.items() if token.special),
        vocabulary=max([backend.get_vocab_size(with_added_tokens=True) - 1, *added]) + 1,
        embedding_rows=embedding_rows(weights, model_config),
        truncation=truncation,
        padding=padding,
        weights=weights,
    )


def _backend(folder: Path) -> tokenizers.Tokenizer:
    path = folder / "tokenizer.json"
    if path.is_file():
        try:
            return tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            raise TokenizerError(f"{path}: not a tokenizer that `tokenizers` can read: {error}") from None
    if (folder / "adapter_config.json").is_file():
        raise TokenizerError(f"{folder} is an adapter without a tokenizer; name the folder of its base model")
    if importlib.util.find_spec("transformers") is None:
        raise TokenizerError(
            f"{folder} has no tokenizer.json; convert it with transformers' save_pretrained, "
            "or install `truetune[train]`, which can read older forms"
        )
    transformers = importlib.import_module("transformers")
    try:
        loaded = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        backend: tokenizers.Tokenizer = loaded.backend_tokenizer
    except Exception as error:
        raise TokenizerError(f"{folder} has no tokenizer.json, and transformers can't read it: {error}") from None
    return backend


def _special(folder: Path, config: dict[str, Any], backend: tokenizers.Tokenizer) -> Iterator[tuple[str, Special]]:
    """tokenizer_config.json says which; special_tokens_map.json where that is silent."""
    older = read_json(folder / "special_tokens_map.json") or {}
    for name in NAMES:
        key = f"{name}_token"
        value = config[key] if key in config else older.get(key)
        token = value.get("content") if isinstance(value, dict) else value
        if not token:
            continue
        id = backend.token_to_id(str(token))
        if id is None:
            id = backend.get_vocab_size(with_added_tokens=True)
            backend.add_special_tokens([tokenizers.AddedToken(str(token), special=True, normalized=False)])
        yield name, Special(str(token), id)
