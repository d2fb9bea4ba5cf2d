"""Finds data sets of the Hugging Face hub that huggingface_hub or datasets has cached on this
machine.

Nothing is downloaded. `owner/name` is found as a snapshot of the hub cache (`datasets--owner--name`), whose files keep
the names of the repository, or as Arrow files of the `datasets` cache (`owner___name`). `owner/name:train_sft` names a
split, `owner/name:main/train` the split of a configuration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from truetune.errors import DataError, format_name_list

# 96 characters are the hub's own limit for each part of a name.
HUB_NAME = re.compile(r"([\w][\w.-]{0,95})/([\w][\w.-]{0,95})(?::([\w./-]{1,200}))?")
ROW_SUFFIXES = frozenset(
    (
        ".parquet",
        ".jsonl",
        ".ndjson",
        ".json",
        ".csv",
        ".tsv",
        ".arrow",
        ".gz",
        ".zst",
        ".bz2",
        ".xz",
    )
)
NOT_ROW_NAMES = frozenset(
    ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "config.json")
)
PART_NAME = re.compile(r"-\d{5}-of-\d{5}.*")
"""Behind the split in the name of one of several files"""
SPLIT_WORD = re.compile(
    r"(?:^|[^a-zA-Z])(train|validation|valid|val|dev|test|eval)(?![a-zA-Z])", re.IGNORECASE
)
# Chosen, not measured: more would only cost the listing of a folder that is no data set.
MAX_FILES = 10_000
"""Files of a cached data set that are looked at; the largest ones of the hub have some thousand"""


def hub_home_folder() -> Path:
    """The folder of huggingface_hub and datasets: HF_HOME, else in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("HF_HOME") or Path(cache) / "huggingface").expanduser()


def hub_cache_folder() -> Path:
    """The folder in which huggingface_hub caches repositories."""
    # HUGGINGFACE_HUB_CACHE is the older name; huggingface_hub reads both, in this order.
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(named or hub_home_folder() / "hub").expanduser()


def datasets_cache_folder() -> Path:
    """The folder in which `datasets` caches prepared data sets."""
    return Path(os.environ.get("HF_DATASETS_CACHE") or hub_home_folder() / "datasets").expanduser()


def may_be_hub_name(name: str) -> bool:
    """Can this be the name of a hub repository, with no local file of this name? `data/rows.jsonl`
    is a path.
    """
    match = HUB_NAME.fullmatch(name)
    # A path that exists, or begins with a folder that does, is a path: nobody's `data/rows` is on
    # the hub.
    if match is None or Path(name).exists() or Path(match[1]).exists():
        return False
    return Path(match[2]).suffix.lower() not in ROW_SUFFIXES | {
        ".yaml",
        ".yml",
        ".py",
        ".toml",
        ".log",
        ".ipynb",
    }


def find_cached_dataset_files(name: str) -> list[Path]:
    """The cached files of a hub data set, in order; empty if it is not cached. Raises DataError if
    it has several splits or configurations and the name tells none of them.
    """
    match = HUB_NAME.fullmatch(name)
    if match is None:
        return []
    owner, repository, wanted = match[1], match[2], match[3]
    splits: dict[str, list[Path]] = {}
    for split, path in [*_files_in_hub_cache(owner, repository)] or _files_in_datasets_cache(
        owner, repository
    ):
        splits.setdefault(split, []).append(path)
    if not splits:
        return []
    return sorted(splits[_choose_split(f"{owner}/{repository}", list(splits), wanted)])


def message_for_uncached_dataset(name: str) -> str:
    """The message for the name of a hub repository whose data are not cached."""
    match = HUB_NAME.fullmatch(name)
    assert match is not None, "it is asked for names of repositories"
    repository = f"{match[1]}/{match[2]}"
    if (hub_cache_folder() / f"models--{match[1]}--{match[2]}").is_dir():
        return (
            f"{repository}: this is a model in the Hugging Face cache, not data; name it with -t"
            " (--tokenizer)"
        )
    return (
        f"{name}: no such file or folder, and no data set of this name in the Hugging Face cache"
        f" ({hub_home_folder()}); truetune does not use the network: download it first, as with `hf"
        f" download {repository} --repo-type dataset`"
    )


def _choose_split(repository: str, splits: list[str], wanted: str | None) -> str:
    """The one split that is wanted; see `_fitting_splits`. Raises DataError if none or several fit."""
    names = {split: split.rpartition("/")[2] for split in splits}
    fits = _fitting_splits(names, wanted)
    if len(fits) == 1:
        return fits[0]
    wrong = "" if wanted is None else f":{wanted}"
    example = f"{repository}:{(fits or splits)[0]}"
    raise DataError(
        f"{repository}{wrong}: its splits are {format_name_list(sorted(splits))}; name one, as in {example}"
    )


def _fitting_splits(names: Mapping[str, str], wanted: str | None) -> list[str]:
    """The splits that a wanted name may mean, by `names` (split -> its name without the
    configuration). Without a wanted name: `train`, the only split, or those that begin with
    `train`.
    """
    if wanted is not None:
        return [split for split, name in names.items() if wanted in (split, name)]
    exact = [split for split, name in names.items() if name == "train"]
    if exact:
        return exact
    if len(names) == 1:
        return list(names)
    # `train_sft` and `train_gen` both begin so: then several fit, and the user chooses.
    return [split for split, name in names.items() if name.startswith("train")]


def _files_in_hub_cache(owner: str, repository: str) -> Iterator[tuple[str, Path]]:
    """(split, file) of the newest snapshot in the hub cache."""
    folder = hub_cache_folder() / f"datasets--{owner}--{repository}"
    snapshot = _snapshot_of_main_or_newest(folder)
    if snapshot is None:
        return
    for path in _data_files_below(snapshot):
        if path.name not in NOT_ROW_NAMES and not any(
            part.startswith(".") for part in path.relative_to(snapshot).parts
        ):
            yield _split_in_file_name(path.relative_to(snapshot)), path


def _snapshot_of_main_or_newest(folder: Path) -> Path | None:
    """The cached snapshot of the branch `main`, otherwise the newest; None if there is none."""
    try:
        named = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        named = ""
    # The file is input: anything but a hash could lead to another folder.
    if re.fullmatch(r"[0-9a-f]{7,64}", named) and (folder / "snapshots" / named).is_dir():
        return folder / "snapshots" / named
    snapshots = [path for path in _folder_entries_or_none(folder / "snapshots") if path.is_dir()]
    # A download of a tag or commit writes no `main`.
    return max(snapshots, key=lambda path: path.stat().st_mtime, default=None)


def _files_in_datasets_cache(owner: str, repository: str) -> Iterator[tuple[str, Path]]:
    """(split, file) of the `datasets` cache: owner___name/configuration/version/hash/name-split.arrow."""
    wanted = f"{owner}___{repository}".lower()
    for folder in _folder_entries_or_none(datasets_cache_folder()):
        if folder.name.lower() != wanted:
            continue
        for path in _data_files_below(folder):
            configuration, *_ = path.relative_to(folder).parts
            stem = PART_NAME.sub("", path.stem)
            split = stem.rpartition("-")[2]
            # `cache-*.arrow` are results of `map` and `filter`, and no rows of the data set.
            if path.suffix == ".arrow" and not path.name.startswith("cache-"):
                yield (split if configuration == "default" else f"{configuration}/{split}"), path


def _split_in_file_name(path: Path) -> str:
    """The split that a file belongs to by its name and folders, with its configuration:
    `data/train-00000-of-00002.parquet` is of `train`, `main/test-00000-of-00001.parquet` of
    `main/test`.
    """
    stem = path.name
    while Path(stem).suffix.lower() in ROW_SUFFIXES:
        stem = Path(stem).stem
    stem = PART_NAME.sub("", stem)
    folders = [part for part in path.parts[:-1] if part != "data"]
    # Without `-00000-of-00001` the name is free: a word of it, or of a folder, says the split.
    if not PART_NAME.search(path.name):
        word = SPLIT_WORD.search(stem) or next(filter(None, map(SPLIT_WORD.search, folders)), None)
        stem = "train" if word is None else word[1].lower()
        folders = [part for part in folders if SPLIT_WORD.fullmatch(part) is None]
    return "/".join([*folders, stem])


def _data_files_below(folder: Path) -> Iterable[Path]:
    """The files below a folder that may hold rows, at most MAX_FILES."""
    paths = (
        path for path in folder.rglob("*") if path.suffix.lower() in ROW_SUFFIXES and path.is_file()
    )
    # Cut while they are listed: a cache on a network disk may hold millions of files.
    return (path for path, _ in zip(paths, range(MAX_FILES), strict=False))


def _folder_entries_or_none(folder: Path) -> list[Path]:
    """The entries of a folder, in order; empty if it can't be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
