"""Opens caches of tokenized rows: their files, and what the files beside them say of how they were
made.

Only `truetune encode` records its inputs in full; of other makers no more is said than they wrote. A cache that was
made with another tokenizer than the one that is named now is the most common fault here, and nothing else shows it
before the first step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truetune.data.find_data_files import DataFile, find_data_files_of_paths
from truetune.data.guard_output_folder import file_digest
from truetune.encoding.cache_key import digest_of
from truetune.encoding.encoded_folder_layout import DATA, MANIFEST, read_manifest_or_none
from truetune.errors import DataError
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.render.find_tokenizer_folder import tokenizer_and_model_files
from truetune.render.template_probes import Probes
from truetune.settings.recognise_input_kind import recognise_kinds
from truetune.settings.run_spec import RunSpec

SAVED_FILES = ("dataset_dict.json", "state.json")
"""What `datasets` writes into a folder of `save_to_disk`"""
# At two, the splits of a set below a hash are missed; deeper than three no maker of caches writes.
MAX_FOLDER_DEPTH = 3
"""Folders below one that is named, in which saved data sets are looked for: Axolotl and open-instruct name them by a
hash, and each may hold splits"""


@dataclass(frozen=True)
class TokenCache:
    """Files of tokenized rows that belong together."""

    path: str
    sources: tuple[DataFile, ...]
    manifest: Mapping[str, Any] | None = None
    """Of `truetune encode`"""
    others: tuple[str, ...] = ()
    """Caches beside it in the same folder, which are not read"""


@dataclass(frozen=True)
class CacheDifference:
    """One input that a cache was made with, and that differs now."""

    what: str
    made_with: str
    now: str


def open_token_cache(path: str) -> TokenCache:
    """Open a cache: data files, a saved data set, a folder of them, or what `truetune encode`
    wrote.

    Of a folder that holds several saved data sets the newest is taken, and the others are named.

    Raises DataError where there are no rows.
    """
    folder = Path(path)
    manifest = _read_manifest_of_encode(folder) if (folder / MANIFEST).is_file() else None
    if manifest is not None:
        shards = [Path(folder, DATA, str(shard["file"])) for shard in manifest["shards"]]
        return TokenCache(path, tuple(find_data_files_of_paths(map(str, shards))), manifest)
    saved = saved_datasets_below_plain_folder(folder) if folder.is_dir() else []
    if saved:
        # A preparation that was run again leaves the older one beside it, under another hash.
        newest = max(saved, key=lambda each: each.stat().st_mtime)
        others = tuple(str(each) for each in saved if each != newest)
        return TokenCache(
            str(newest), tuple(find_data_files_of_paths([str(newest)])), others=others
        )
    return TokenCache(path, tuple(find_data_files_of_paths([path])))


def _read_manifest_of_encode(folder: Path) -> dict[str, Any] | None:
    """What `truetune encode` says of a folder; None where the file is another program's. Raises DataError."""
    manifest = read_manifest_or_none(folder)
    if manifest is not None and isinstance(manifest.get("shards"), list):
        return manifest
    # By the other files of the folder: another program's manifest.json is no fault.
    if recognise_kinds(folder)[0] == "encoded":
        raise DataError(
            f"{folder / MANIFEST}: not as this version of truetune encode writes it; encode again"
        )
    return None


def saved_datasets_below_plain_folder(folder: Path) -> list[Path]:
    """Saved data sets below a folder that is none itself; those of splits belong to the one above them."""
    if any((folder / name).is_file() for name in SAVED_FILES):
        return []
    saved: list[Path] = []
    level = [folder]
    for _ in range(MAX_FOLDER_DEPTH):
        level = sorted(below for above in level for below in above.iterdir() if below.is_dir())
        saved += [each for each in level if any((each / name).is_file() for name in SAVED_FILES)]
        # Splits below a saved data set are its own.
        level = [each for each in level if each not in saved]
    return saved


def find_cache_differences(
    cache: TokenCache, spec: RunSpec, probes: Probes
) -> list[CacheDifference]:
    """What the cache was made with and is another one now, as far as its maker wrote it down.

    Args:
        cache: of `truetune encode`; of other makers nothing is known.
        spec: the settings now.
        probes: the tokenizer and template now.
    """
    return (
        []
        if cache.manifest is None
        else _recorded_inputs_that_differ_now(cache.manifest, spec, probes)
    )


def _recorded_inputs_that_differ_now(
    manifest: Mapping[str, Any], spec: RunSpec, probes: Probes
) -> list[CacheDifference]:
    """The inputs that `truetune encode` recorded, compared with what is named now."""
    inputs = manifest.get("inputs")
    if not isinstance(inputs, dict):
        return []
    differences = []
    digests_then = _mapping_or_empty(inputs, "tokenizer")
    digests_now = {
        path.name: file_digest(path)
        for path in tokenizer_and_model_files(probes.tokenizer.folder, probes.tokenizer.weights)
    }
    # Only names that both have: a file that was added is seen by the rules on tokenizers.
    differ = sorted(
        name
        for name in digests_then.keys() & digests_now.keys()
        if digests_then[name] != digests_now[name]
    )
    if differ:
        differences.append(
            CacheDifference("tokenizer files", "others of the same name", ", ".join(differ))
        )
    differences += _template_difference_from_recorded(inputs, probes)
    settings = _mapping_or_empty(inputs, "settings")
    # Only settings that were given: a default is nobody's word against the cache.
    for name in sorted(spec.model_fields_set & {"max_length", "history", "append_eos", "mask_by"}):
        now = getattr(spec, name)
        if name in settings and settings[name] != now:
            differences.append(CacheDifference(name, str(settings[name]), str(now)))
    return differences


def _mapping_or_empty(inputs: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A mapping inside of a mapping; empty where there is none."""
    value = inputs.get(name)
    return value if isinstance(value, dict) else {}


def _template_difference_from_recorded(
    inputs: Mapping[str, Any], probes: Probes
) -> list[CacheDifference]:
    """The chat template, where it is none of those that the cache was made with."""
    digests_then = _mapping_or_empty(inputs, "templates")
    if probes.template is None or not digests_then:
        return []
    # Several templates may stand in one tokenizer; any of them will do.
    if digest_of(probes.template.source.encode()) in digests_then.values():
        return []
    return [CacheDifference("chat template", "another text", probes.template.name)]


def tokenizer_named_by_cache(cache: TokenCache) -> str | None:
    """The tokenizer that a cache says it was made with: open-instruct writes config.json into its cache."""
    try:
        value = parse_json((Path(cache.path) / "config.json").read_bytes(), MODEL_FILE)
    except (OSError, ValueError):
        return None
    about = value.get("tokenizer_config") if isinstance(value, dict) else None
    name = about.get("tokenizer_name_or_path") if isinstance(about, dict) else None
    return name if isinstance(name, str) else None
