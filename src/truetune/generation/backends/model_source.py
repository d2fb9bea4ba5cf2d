"""Place: what a user names as MODEL, and where its parts are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from truetune.checkpoint.checkpoint import Checkpoint, is_checkpoint, located, read_checkpoint
from truetune.checkpoint.files import read_object
from truetune.checkpoint.run_record import CONTRACT, read_run
from truetune.data.predictions import score_hint
from truetune.errors import UsageError
from truetune.render.probes import Probes, prepared
from truetune.render.tokenizer import Tokenizer
from truetune.spec.files import spec_of
from truetune.spec.near import near_path
from truetune.spec.run import RunSpec

SourceKind = Literal["model", "adapter", "gguf", "endpoint"]
GENERATION_CONFIG = "generation_config.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
PROMPT_SETTINGS = ("template_kwargs", "learn", "history", "append_eos", "max_length")
"""Settings of the training that say how a model is asked"""


@dataclass(frozen=True)
class ModelSource:
    """A model to be asked."""

    name: str
    """As it was given"""
    kind: SourceKind
    folder: Path | None
    """The model, the adapter or the GGUF file; None for an endpoint"""
    base: Path | None
    """What an adapter stands on, or a model was made of, where that is known"""
    tokenizer: Path
    """The folder of tokenizer and template"""
    model: Path | None
    """The folder of config.json and generation_config.json"""
    run: Mapping[str, Any]
    """run.json; empty where `truetune train` did not make it"""
    contract: Path | None
    """contract.json of that run"""

    def spec(self, **settings: Any) -> RunSpec:
        """The settings of its training that say how it is asked, as far as they are recorded, and `settings` over them.

        Raises SpecError for settings that are none.
        """
        recorded = self.run.get("settings") or {}
        kept = {name: recorded[name] for name in PROMPT_SETTINGS if name in recorded}
        specials = (recorded.get("encode") or {}).get("content_specials", "error")
        model = str(self.model) if self.model else None
        own = {
            "tokenizer": str(self.tokenizer),
            "model": model,
            "encode": {"content_specials": specials},
        }
        return spec_of({**kept, **own, **settings}, "command line")

    def prepared(self, **settings: Any) -> Probes:
        """Its tokenizer and template under `spec(**settings)`, with the generation_config.json that it is used with: an
        adapter's own before its base's.

        Raises SpecError, TokenizerError or TemplateError.
        """
        made = prepared(self.spec(**settings))
        own = (
            read_object(self.folder / GENERATION_CONFIG, [])
            if self.folder and self.kind == "adapter"
            else None
        )
        return (
            made
            if own is None
            else replace(made, tokenizer=replace(made.tokenizer, generation_config=own))
        )


def serving_stops(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids at which serving ends an answer: those of generation_config, else of config, else the tokenizer's EOS."""
    eos = tokenizer.special.get("eos")
    for source in (
        tokenizer.generation_config or {},
        tokenizer.model_config,
        {"eos_token_id": eos and eos.id},
    ):
        named = source.get("eos_token_id")
        ids = frozenset(
            id for id in (named if isinstance(named, list) else [named]) if type(id) is int
        )
        if ids:
            return ids
    return frozenset()


def find_model_source(
    name: str, *, base: str | None = None, tokenizer: str | None = None
) -> ModelSource:
    """Find what a folder, a GGUF file, a URL or a name of the local hub cache means.

    Raises UsageError where there is nothing of that name, or a part of it is not at hand.
    """
    given = _folder_of_option(tokenizer, "--tokenizer") if tokenizer else None
    under = _folder_of_option(base, "--base") if base else None
    if urlsplit(name).scheme in ("http", "https"):
        return _source_without_folder(name, "endpoint", None, under, given)
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        return _source_without_folder(
            name, "gguf", path, under, given or _folder_of_tokenizer(path)
        )
    if path.is_file():
        raise UsageError(
            f"{name}: a file; expected the folder of a model or an adapter, a .gguf file, a URL, or"
            f" a model of the local hub cache{score_hint(path)}"
        )
    folder = located(name, Path())
    if folder is None or not is_checkpoint(folder):
        what = "no such file or folder" if folder is None else "holds no model and no adapter"
        raise UsageError(
            f"{name}: {what}; expected the folder of a model or an adapter, a .gguf file, a URL, or"
            f" a model of the local hub cache{near_path(name)}"
        )
    return _source_of_folder(name, read_checkpoint(folder, base=under), given)


def _source_of_folder(name: str, found: Checkpoint, given: Path | None) -> ModelSource:
    under = found.base.folder if found.base else None
    if found.kind == "adapter" and under is None:
        raise UsageError(
            f"{name}: its base {found.base_name or '(not named)'} is not on this machine; name its"
            " folder with --base"
        )
    above = found.folder.resolve().parent
    places = (given, found.folder, *([above] if found.run else []), under)
    tokenizer = next((place for place in places if place and _has_tokenizer(place)), None)
    if tokenizer is None:
        raise UsageError(f"{name}: there is no tokenizer with it; name its folder with --tokenizer")
    model = found.folder if found.kind == "model" else under
    contract = next(
        (place / CONTRACT for place in (found.folder, above) if (place / CONTRACT).is_file()), None
    )
    return ModelSource(name, found.kind, found.folder, under, tokenizer, model, found.run, contract)


def _source_without_folder(
    name: str, kind: SourceKind, file: Path | None, base: Path | None, tokenizer: Path | None
) -> ModelSource:
    tokenizer = tokenizer or base
    if tokenizer is None:
        raise UsageError(f"{name}: name the folder of its tokenizer with --tokenizer")
    model = tokenizer if (tokenizer / "config.json").is_file() else base
    contract = tokenizer / CONTRACT
    return ModelSource(
        name,
        kind,
        file,
        base,
        tokenizer,
        model,
        read_run(tokenizer),
        contract if contract.is_file() else None,
    )


def _folder_of_tokenizer(file: Path) -> Path | None:
    return file.parent if _has_tokenizer(file.parent) else None


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def _folder_of_option(name: str, option: str) -> Path:
    place = located(name, Path())
    if place is None:
        raise UsageError(
            f"{option} {name}: no such folder, and no model of that name in the local hub cache"
        )
    return place
