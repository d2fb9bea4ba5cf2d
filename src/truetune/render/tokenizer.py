"""Loads a tokenizer folder as the facts about it (ids, tokens, special tokens), without transformers.

Ids are those of `tokenizer.json`. transformers 5 rebuilds the pre-tokenizer of some classes (`LlamaTokenizer`) and
then gives other ids for text that begins with white space; the published ids are those of the file.

What transformers adds to that file (tokens that other files name, special tokens by name) is done here in its order,
so that ids agree. The trade-off: its rules are written twice, theirs and here, and `tests/render/test_tokenizer.py`
compares the two; in return `truetune check` starts without transformers and torch.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from truetune.errors import TokenizerError, shorten_name
from truetune.render.find_tokenizer_folder import (
    find_tokenizer_folder,
    lacks_tokenizer,
    read_json,
    read_templates,
    tokenizer_and_model_files,
)
from truetune.render.read_embedding_from_safetensors import embedding_rows
from truetune.render.silence_tokenizer_panic_messages import is_panic, panic_text_withheld

SPECIAL_NAMES = ("bos", "eos", "pad", "unk")
MIN_KEPT_BYTES = 1 << 20
"""A smaller tokenizer.json is read in a few ms, less than the clock of some file systems tells apart."""


class SpecialToken(NamedTuple):
    """A token with its id."""

    token: str
    id: int


class StopToken(NamedTuple):
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
    special: dict[str, SpecialToken]
    """By name: bos, eos, pad, unk, and others (`image`, `mask`); those that are set."""
    adds_bos: bool
    """Does a plain encode write BOS?"""
    adds_eos: bool
    padding_side: str
    control: frozenset[int]
    """Ids of the added tokens that are special."""
    vocabulary: int
    """Highest id in use, plus one."""
    embedding_rows: int | None
    """Of the weights, else of config.json; None where neither is available."""
    truncation: dict[str, Any] | None
    """The truncation that tokenizer.json carries; it is switched off in `backend`."""
    padding: dict[str, Any] | None
    """Likewise the padding."""
    weights: Path
    """The folder of config.json and the weights."""
    added_in_file: Mapping[int, tokenizers.AddedToken] = field(default_factory=dict)
    """The added tokens of tokenizer.json, by id, before other files of the folder changed or completed them."""


def with_special_tokens_set(tokenizer: Tokenizer, tokens: Mapping[str, str]) -> Tokenizer:
    """The tokenizer after a trainer has set some of its special tokens (`pad_token`: `<|endoftext|>`).

    A token that the vocabulary does not hold is left out: the trainer adds it.
    """
    known = {}
    for name, token in tokens.items():
        id = tokenizer.backend.token_to_id(token)
        if id is not None:
            known[name.removesuffix("_token")] = SpecialToken(token, id)
    return replace(tokenizer, special={**tokenizer.special, **known}) if known else tokenizer


def load_tokenizer(name: str, *, model: str | None = None) -> Tokenizer:
    """Read a tokenizer folder, a tokenizer.json, or a model of the local hub cache.

    `model` is the folder of config.json and the weights, where it is another. Raises TokenizerError.
    """
    folder = find_tokenizer_folder(name)
    weights = find_tokenizer_folder(model) if model else folder
    # BaseException, for a panic of Rust code is no Exception; every other one continues.
    try:
        with panic_text_withheld():
            return _load_folder_or_use_again(folder, weights)
    except BaseException as error:
        if not is_panic(error):
            raise
        raise TokenizerError(
            f"{folder / 'tokenizer.json'}: the library `tokenizers` failed: {shorten_name(error)}; is"
            " each pattern in it sound? Take the file as it was published"
        ) from None


def _load_folder_or_use_again(folder: Path, weights: Path) -> Tokenizer:
    """Load a tokenizer, or take the last one that was loaded if it is of the same folder, which has not changed.

    One check asks five times for the tokenizer of a run, and reading a large one takes 0.5 to 1.7 s.
    """
    path = folder / "tokenizer.json"
    if not path.is_file() or path.stat().st_size < MIN_KEPT_BYTES:
        return _load_folder(folder, weights)
    try:
        files = tuple(_files_and_their_states(folder, weights))
    except OSError:
        # A link that leads nowhere: whether it changes can't be seen.
        return _load_folder(folder, weights)
    kept = _load_folder_in_state(folder, weights, files)
    if kept.backend.get_vocab_size(with_added_tokens=True) != kept.tokens:
        # Somebody has added tokens to it.
        return _load_folder(folder, weights)
    return replace(
        kept.tokenizer,
        config=copy.deepcopy(kept.tokenizer.config),
        model_config=copy.deepcopy(kept.tokenizer.model_config),
        generation_config=copy.deepcopy(kept.tokenizer.generation_config),
        templates=dict(kept.tokenizer.templates),
        special=dict(kept.tokenizer.special),
    )


class _KeptTokenizer(NamedTuple):
    """A tokenizer as it was loaded."""

    tokenizer: Tokenizer
    tokens: int
    """Of its vocabulary, added ones included"""

    @property
    def backend(self) -> tokenizers.Tokenizer:
        return self.tokenizer.backend


@lru_cache(maxsize=1)
def _load_folder_in_state(
    folder: Path, weights: Path, files: tuple[tuple[str, int, int], ...]
) -> _KeptTokenizer:
    """The tokenizer of a folder whose files have these states."""
    tokenizer = _load_folder(folder, weights)
    return _KeptTokenizer(tokenizer, tokenizer.backend.get_vocab_size(with_added_tokens=True))


def _files_and_their_states(folder: Path, weights: Path) -> Iterator[tuple[str, int, int]]:
    """(path, time of change, size) of each file that a tokenizer is read from. Raises OSError."""
    for path in (
        *tokenizer_and_model_files(folder, weights),
        *sorted(weights.glob("*.safetensors*")),
    ):
        state = path.stat()
        yield str(path), state.st_mtime_ns, state.st_size


def _load_folder(folder: Path, weights: Path) -> Tokenizer:
    """Load the tokenizer of a folder; `weights` is the folder of config.json."""
    config = read_json(folder / "tokenizer_config.json") or {}
    model_config = read_json(weights / "config.json") or {}
    backend = _load_tokenizers_backend(folder)
    # Some published files carry them (128 tokens, pad to the longest): every encode would be cut and filled silently.
    truncation, padding = backend.truncation, backend.padding
    backend.no_truncation()
    backend.no_padding()
    added_in_file = backend.get_added_tokens_decoder()
    settings = _merge_special_token_settings(folder, config, padding)
    named = _special_tokens_by_name(settings, model_config, backend)
    _add_missing_tokens(
        backend,
        folder,
        config,
        [*named.values(), *_token_texts(settings.get("extra_special_tokens"))],
    )
    special = {}
    for name, token in named.items():
        id = backend.token_to_id(token)
        if id is not None:
            special[name] = SpecialToken(token, id)
    added = backend.get_added_tokens_decoder()
    # What a post-processor adds is asked of it, not read from its settings: there are several kinds.
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
        padding_side=str(settings.get("padding_side", "right")),
        control=frozenset(id for id, token in added.items() if token.special),
        vocabulary=max([backend.get_vocab_size(with_added_tokens=True) - 1, *added]) + 1,
        embedding_rows=embedding_rows(weights, model_config),
        truncation=truncation,
        padding=padding,
        weights=weights,
        added_in_file=added_in_file,
    )


def _load_tokenizers_backend(folder: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a folder; of older forms (a SentencePiece model) by transformers, where that is installed.

    Raises TokenizerError.
    """
    path = folder / "tokenizer.json"
    if path.is_file():
        try:
            return tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            raise TokenizerError(
                f"{path}: not a tokenizer that `tokenizers` can read: {error}"
            ) from None
    if (folder / "adapter_config.json").is_file():
        raise TokenizerError(
            f"{folder} is an adapter without a tokenizer; name the folder of its base model"
        )
    if lacks_tokenizer(folder):
        raise TokenizerError(
            f"{folder} contains no tokenizer file (tokenizer.json); name another folder with -t"
        )
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
        raise TokenizerError(
            f"{folder} has no tokenizer.json, and transformers can't read it: {error}"
        ) from None
    return backend


def _merge_special_token_settings(
    folder: Path, config: dict[str, Any], padding: dict[str, Any] | None
) -> dict[str, Any]:
    """Merge the settings that transformers starts from: special_tokens_map.json wins, but only where the
    config lists no added tokens.
    """
    older: dict[str, Any] = {}
    if "added_tokens_decoder" not in config:
        older = read_json(folder / "special_tokens_map.json") or {}
    state: dict[str, Any] = {}
    if padding:
        state = {"pad_token": padding["pad_token"], "padding_side": padding["direction"]}
    settings = {**state, **config, **older}
    if not settings.get("extra_special_tokens"):
        settings["extra_special_tokens"] = settings.get("additional_special_tokens")
    return settings


def _special_tokens_by_name(
    settings: dict[str, Any], model_config: dict[str, Any], backend: tokenizers.Tokenizer
) -> dict[str, str]:
    """Special tokens by name; those that config.json numbers where the tokenizer's files name none, as GPT-2's do."""
    extra = settings.get("extra_special_tokens")
    # A list of extra tokens has no names; a mapping (`image_token`) has.
    values = {**settings, **extra} if isinstance(extra, dict) else settings
    named: dict[str, str] = {}
    for key, value in values.items():
        if key.endswith("_token"):
            for text in _token_texts([value]):
                named[key.removesuffix("_token")] = text
    # A name that is set to null counts as named: its owner says that there is none.
    if named or any(f"{name}_token" in settings for name in SPECIAL_NAMES):
        return named
    for name in SPECIAL_NAMES:
        id = model_config.get(f"{name}_token_id")
        token = backend.id_to_token(id) if isinstance(id, int) else None
        if token:
            named[name] = token
    return named


def _token_texts(tokens: Any) -> list[str]:
    """The texts of tokens that are written as strings or as objects."""
    values = tokens if isinstance(tokens, list) else []
    texts = (value.get("content") if isinstance(value, dict) else value for value in values)
    return [text for text in texts if isinstance(text, str) and text]


def _add_missing_tokens(
    backend: tokenizers.Tokenizer, folder: Path, config: dict[str, Any], special: list[str]
) -> None:
    """Add the tokens that other files name and tokenizer.json lacks, in the order of transformers, for the same ids."""
    known = _added_tokens(backend)
    listed = config.get("added_tokens_decoder")
    if listed is None:
        in_file = read_json(folder / "added_tokens.json") or {}
        texts = [text for text in in_file if text not in known]
        tokens = [tokenizers.AddedToken(text, normalized=text not in special) for text in texts]
    else:
        tokens = _tokens_of_added_tokens_decoder(folder, listed)
        # By repr, for AddedToken compares by its text alone: one with other flags (lstrip) replaces the file's.
        tokens = [token for token in tokens if repr(token) != repr(known.get(token.content))]
    backend.add_tokens(tokens)
    known = _added_tokens(backend)
    new = [known.get(text) or tokenizers.AddedToken(text, normalized=False) for text in special]
    backend.add_special_tokens([token for token in new if not token.special])


def _added_tokens(backend: tokenizers.Tokenizer) -> dict[str, tokenizers.AddedToken]:
    """The added tokens of a tokenizer by their text."""
    return {token.content: token for token in backend.get_added_tokens_decoder().values()}


def _tokens_of_added_tokens_decoder(folder: Path, listed: Any) -> list[tokenizers.AddedToken]:
    """The tokens of `added_tokens_decoder`, by rising id. Raises TokenizerError where it is malformed."""
    try:
        return [tokenizers.AddedToken(**listed[id]) for id in sorted(listed, key=int)]
    except (TypeError, ValueError, AttributeError) as error:
        raise TokenizerError(
            f"{folder / 'tokenizer_config.json'}: added_tokens_decoder: {error}"
        ) from None
