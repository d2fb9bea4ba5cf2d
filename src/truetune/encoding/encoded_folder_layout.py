"""Layout: the names inside a folder of encoded data, and what its describing files hold.

manifest.json    what is here, and everything that shaped it; written last, so without it nothing is whole. It lists
                 every other file with its size and digest: only what it lists is ever replaced or removed
data/            the shards
origins/         file, line and row of each row, where the shards must not have them
dropped.jsonl    examples that are not written, and why
rejected.jsonl   rows that could not be read, rendered or encoded, and why
.work/           a run that has not ended
.lock            held while a run writes, on a disk

The trade-off: everything is listed by size and digest, which means a pass over all bytes when a folder is opened for
writing. In return no file of a user is ever removed because it has a name of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from truetune.data.guard_output_folder import LOCK_NAME, ListedFile, Listing, parse_listing
from truetune.data.remote_path import DataPath
from truetune.encoding.cache_key import digest_of
from truetune.encoding.encode_shard import Shard
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json

FORMAT = 2
"""Of manifest.json. 1 did not list the files, so that what it describes can be read and not be written over."""
READABLE = (1, FORMAT)
MANIFEST, DATA, ORIGIN, WORK = "manifest.json", "data", "origins", ".work"
ASIDE = ("dropped.jsonl", "rejected.jsonl")
PUBLISHED_NAMES = re.compile(
    r"data/(train|data)-[0-9a-f-]*\d{5,}(-of-\d{5,})?\.(parquet|arrow)|data/(state|dataset_info)\.json"
    r"|origins/([0-9a-f]{16}-)?\d{5,}\.parquet|(dropped|rejected)\.jsonl"
)
"""Of all files that a manifest may list: one that lists others is none of ours."""
KEY = re.compile(r"[0-9a-f]{40}")

__all__ = ["ASIDE", "DATA", "FORMAT", "LOCK_NAME", "MANIFEST", "ORIGIN", "WORK"]


def manifest_bytes(
    shards: Sequence[Shard], names: Sequence[str], facts: Mapping[str, Any], files: Listing
) -> bytes:
    """The bytes of manifest.json. `names` are those of the shards in data/, `files` all files but
    manifest.json itself.
    """
    records = []
    for shard, name in zip(shards, names, strict=True):
        record = {**shard.__dict__, "file": name}
        del record[
            "files"
        ]  # names of the run's parts, which are gone; `files` lists them by their places
        records.append(record)
    listing = {name: list(files[name]) for name in sorted(files)}
    body = {"format": FORMAT, **facts, "files": listing, "shards": records}
    return json.dumps(body, indent=1, ensure_ascii=False).encode()


def read_manifest_or_none(folder: DataPath) -> dict[str, Any] | None:
    """The manifest of a folder of encoded data; None where the folder is not whole, or of a format
    that is not known.
    """
    try:
        manifest = parse_json((folder / MANIFEST).read_bytes(), RESULT)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    is_known = isinstance(manifest, dict) and manifest.get("format") in READABLE
    return manifest if is_known else None


def files_of_manifest(manifest: Mapping[str, Any] | None) -> dict[str, ListedFile] | None:
    """The files that a manifest lists; None where it is not one that truetune wrote, or is of an older format."""
    if manifest is None or manifest.get("format") != FORMAT:
        return None
    if not KEY.fullmatch(str(manifest.get("key"))):
        return None
    # A manifest that lists `../thesis.tex` would have it removed. Only names that `encode` gives are believed.
    listing = parse_listing(manifest.get("files"))
    if listing is None or not all(PUBLISHED_NAMES.fullmatch(name) for name in listing):
        return None
    return listing


def listing_entry(body: Any) -> ListedFile:
    """What a listing says of a file with these bytes."""
    return ListedFile(memoryview(body).nbytes, digest_of(body))


def shard_name(i: int, count: int, form: str) -> str:
    """The name of a shard, as `datasets` names it: a split for `load_dataset`, plain for `load_from_disk`."""
    return f"{'train' if form == 'parquet' else 'data'}-{i:05d}-of-{count:05d}.{form}"


def load_from_disk_metadata_files(names: Sequence[str], key: str) -> dict[str, bytes]:
    """The files that `datasets.load_from_disk` reads beside Arrow files."""
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": key[:16],
        "_split": "train",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
    }
    return {"state.json": json.dumps(state).encode(), "dataset_info.json": b"{}"}
