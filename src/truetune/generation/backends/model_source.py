"""What a user names as MODEL: a folder, an adapter, a GGUF file, a URL; and where its parts are.

To ask a model five things must be known: its weights, its base where it is an adapter, its tokenizer and template, its
configs, and how it was trained (run.json and contract.json of `truetune train`). They are looked for where people keep
them: in the folder itself, in the run's folder above a checkpoint, in the base. What is found first wins, in that
order; what can't be found is said with the option that names it. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from truetune.checkpoint.load_checkpoint import (
    Checkpoint,
    find_model_folder,
    is_checkpoint,
    read_checkpoint,
)
from truetune.checkpoint.read_run_and_check_checkpoints import CONTRACT_FILE, read_run
from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.data.read_predictions import suggest_score_command
from truetune.errors import UsageError
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.render.tokenizer import Tokenizer
from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec
from truetune.settings.suggest_spelling import did_you_mean_path

SourceKind = Literal["model", "adapter", "gguf", "endpoint"]
GENERATION_CONFIG = "generation_config.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
"""A folder with one of these has a tokenizer"""
PROMPT_SETTINGS = ("template_kwargs", "learn", "history", "append_eos", "max_length")
"""Settings of the training that say how a model is asked"""


@dataclass(frozen=True)
class ModelSource:
    """A model to be asked, and the files that belong to it."""

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

    def recorded_spec_for_asking(self, **settings: Any) -> RunSpec:
        """The settings of its training that say how it is asked, as far as they are recorded.

        Args:
            **settings: settings of RunSpec that come before the recorded ones.

        Raises:
            SpecError: for settings that are none.
        """
        recorded = self.run.get("settings") or {}
        of_prompts = {name: recorded[name] for name in PROMPT_SETTINGS if name in recorded}
        # How control tokens in contents were trained decides whether a prompt may hold them.
        specials = (recorded.get("encode") or {}).get("content_specials", "error")
        own = {
            "tokenizer": str(self.tokenizer),
            "model": str(self.model) if self.model else None,
            "encode": {"content_specials": specials},
        }
        return validate_settings({**of_prompts, **own, **settings}, "command line")

    def prepared(self, **settings: Any) -> Probes:
        """The tokenizer and template of the model under `spec(**settings)`, with the
        generation_config.json that it is used with.

        Raises:
            SpecError, TokenizerError, TemplateError: as `load_tokenizer_and_template_of_run`.
        """
        probes = load_tokenizer_and_template_of_run(self.recorded_spec_for_asking(**settings))
        # An adapter's own generation_config.json comes before its base's: whoever saved it meant it for this model.
        own_config = None
        if self.folder and self.kind == "adapter":
            own_config = read_json_object(self.folder / GENERATION_CONFIG, [])
        if own_config is None:
            return probes
        return replace(probes, tokenizer=replace(probes.tokenizer, generation_config=own_config))


def serving_stops(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids at which serving ends an answer: those of generation_config, else of config, else the tokenizer's EOS.

    The first that names any counts alone, as `generate` of transformers reads them: they are not merged.
    """
    eos = tokenizer.special.get("eos")
    # bool is an int in Python, and `eos_token_id: true` no id: hence `type` below.
    for config in (
        tokenizer.generation_config or {},
        tokenizer.model_config,
        {"eos_token_id": eos and eos.id},
    ):
        named = config.get("eos_token_id")
        values = named if isinstance(named, list) else [named]
        ids = frozenset(id for id in values if type(id) is int)
        if ids:
            return ids
    return frozenset()


def find_model_source(
    name: str, *, base: str | None = None, tokenizer: str | None = None
) -> ModelSource:
    """Find what a folder, a GGUF file, a URL or a name of the local hub cache means.

    Args:
        name: what the user gave as MODEL.
        base: the folder of the base, where the model does not tell it.
        tokenizer: the folder of the tokenizer, where it is not with the model.

    Raises:
        UsageError: where there is nothing of that name, or a part of it is missing.
    """
    tokenizer_folder = _folder_of_option(tokenizer, "--tokenizer") if tokenizer else None
    base_folder = _folder_of_option(base, "--base") if base else None
    if urlsplit(name).scheme in ("http", "https"):
        return _source_without_folder(name, "endpoint", None, base_folder, tokenizer_folder)
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        # Exporters put the tokenizer beside the file; of one alone, the user must name it.
        beside = path.parent if _has_tokenizer(path.parent) else None
        return _source_without_folder(name, "gguf", path, base_folder, tokenizer_folder or beside)
    if path.is_file():
        raise UsageError(
            f"{name}: a file; expected the folder of a model or an adapter, a .gguf file, a URL, or"
            f" a model of the local hub cache{suggest_score_command(path)}"
        )
    folder = find_model_folder(name, Path())
    if folder is None or not is_checkpoint(folder):
        what = "no such file or folder" if folder is None else "holds no model and no adapter"
        raise UsageError(
            f"{name}: {what}; expected the folder of a model or an adapter, a .gguf file, a URL, or"
            f" a model of the local hub cache{did_you_mean_path(name)}"
        )
    return _source_of_checkpoint(name, read_checkpoint(folder, base=base_folder), tokenizer_folder)


def _source_of_checkpoint(
    name: str, checkpoint: Checkpoint, tokenizer_folder: Path | None
) -> ModelSource:
    """The source of a folder with weights. Raises UsageError where its base or its tokenizer can't be found."""
    base = checkpoint.base.folder if checkpoint.base else None
    if checkpoint.kind == "adapter" and base is None:
        raise UsageError(
            f"{name}: its base {checkpoint.base_name or '(not named)'} is not on this machine; name"
            " its folder with --base"
        )
    # `outputs/checkpoint-50` of a run has no tokenizer of its own before the run ends: `outputs` has. The folder above
    # is looked at only where a record says that it is a run's, for it may hold other people's models.
    run_folder = checkpoint.folder.resolve().parent
    above = run_folder if checkpoint.run_record else None
    tokenizer = _first_with_tokenizer((tokenizer_folder, checkpoint.folder, above, base))
    if tokenizer is None:
        raise UsageError(f"{name}: there is no tokenizer with it; name its folder with --tokenizer")
    contracts = [folder / CONTRACT_FILE for folder in (checkpoint.folder, run_folder)]
    return ModelSource(
        name,
        checkpoint.kind,
        checkpoint.folder,
        base,
        tokenizer,
        checkpoint.folder if checkpoint.kind == "model" else base,
        checkpoint.run_record,
        next((file for file in contracts if file.is_file()), None),
    )


def _source_without_folder(
    name: str, kind: SourceKind, file: Path | None, base: Path | None, tokenizer: Path | None
) -> ModelSource:
    """The source of what has no folder: the tokenizer's stands in for it. Raises UsageError where there is none."""
    tokenizer = tokenizer or base
    if tokenizer is None:
        raise UsageError(f"{name}: name the folder of its tokenizer with --tokenizer")
    contract = tokenizer / CONTRACT_FILE
    return ModelSource(
        name,
        kind,
        file,
        base,
        tokenizer,
        tokenizer if (tokenizer / "config.json").is_file() else base,
        read_run(tokenizer),
        contract if contract.is_file() else None,
    )


def _first_with_tokenizer(folders: Iterable[Path | None]) -> Path | None:
    """The first of some folders that has a tokenizer; None where none has."""
    return next((folder for folder in folders if folder and _has_tokenizer(folder)), None)


def _has_tokenizer(folder: Path) -> bool:
    """Does a folder hold a tokenizer?"""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def _folder_of_option(name: str, option: str) -> Path:
    """The folder that an option names. Raises UsageError where there is none."""
    folder = find_model_folder(name, Path())
    if folder is None:
        raise UsageError(
            f"{option} {name}: no such folder, and no model of that name in the local hub cache"
        )
    return folder
