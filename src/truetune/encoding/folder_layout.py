"""Layout: the names inside a folder of encoded data, and what its describing files hold.

manifest.json    what is here, and everything that shaped it; written last, so without it nothing is whole. It lists
                 every other file with its size and digest: only what it lists is ever replaced or removed
data/            the shards
origins/         file, line and row of each row, where the shards must not have them
dropped.jsonl    examples that are not written, and why
rejected.jsonl   rows that could not be read, rendered or encoded, and why
.work/           a run that has not ended
.lock            held while a run writes, on a disk
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from truetune.data.output_folder import LOCK, Listed, Listing, listing_from
from truetune.data.remote import Place
from truetune.encoding.shard import Shard
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import RESULT

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

__all__ = ["ASIDE", "DATA", "FORMAT", "LOCK", "MANIFEST", "ORIGIN", "WORK"]


def manifest_of(
    shards: Sequence[Shard], names: Sequence[str], facts: Mapping[str, Any], files: Listing
) -> bytes:
    """manifest.json; `names` are those of the shards in data/, `files` all files but manifest.json itself."""
    described = [
        {**shard.__dict__, "file": name} for shard, name in zip(shards, names, strict=True)
    ]
    for shard in described:
        del shard["files"]
    body = {"format": FORMAT, **facts, "files": {name: list(files[name]) for name in sorted(files)}}
    return json.dumps({**body, "shards": described}, indent=1, ensure_ascii=False).encode()


def manifest_in(folder: Place) -> dict[str, Any] | None:
    """What a folder holds; None where it is not whole, or of a format that is not known."""
    try:
        found = parse_json((folder / MANIFEST).read_bytes(), RESULT)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("format") in READABLE else None


def files_of_manifest(manifest: Mapping[str, Any] | None) -> dict[str, Listed] | None:
    """The files that a manifest lists; None where it is not one that truetune wrote, or is of an older format."""
    if (
        manifest is None
        or manifest.get("format") != FORMAT
        or not KEY.fullmatch(str(manifest.get("key")))
    ):
        return None
    found = listing_from(manifest.get("files"))
    if found is None or not all(PUBLISHED_NAMES.fullmatch(name) for name in found):
        return None
    return found


def listing_entry(body: Any) -> Listed:
    """What a listing says of a file with these bytes."""
    return Listed(memoryview(body).nbytes, hashlib.blake2b(body, digest_size=20).hexdigest())


def shard_name(i: int, count: int, form: str) -> str:
    """The name of a shard, as `datasets` names it: a split for `load_dataset`, plain for `load_from_disk`."""
    return f"{'train' if form == 'parquet' else 'data'}-{i:05d}-of-{count:05d}.{form}"


def dataset_files(names: Sequence[str], key: str) -> dict[str, bytes]:
    """The files that `datasets.load_from_disk` reads beside Arrow files."""
    state: dict[str, Any] = {
        **{
            "_data_files": [{"filename": name} for name in names],
            "_fingerprint": key[:16],
            "_split": "train",
        },
        **{
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
        },
    }
    return {"state.json": json.dumps(state).encode(), "dataset_info.json": b"{}"}
