"""Layout: the names inside a folder of encoded data, and what its describing files hold.

manifest.json    what is here, and everything that shaped it; written last, so without it nothing is whole
data/            the shards
origins/         file, line and row of each row, where the shards must not have them
dropped.jsonl    examples that are not written, and why
rejected.jsonl   rows that could not be read, rendered or encoded, and why
.work/           a run that has not ended
.lock            held while a run writes, on a disk
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from truetune.data.remote import Place
from truetune.encoding.shard import Shard

FORMAT = 1
"""Of manifest.json."""
MANIFEST, DATA, ORIGIN, WORK, LOCK = "manifest.json", "data", "origins", ".work", ".lock"
ASIDE = ("dropped.jsonl", "rejected.jsonl")
OWN = {MANIFEST, DATA, ORIGIN, WORK, LOCK, *ASIDE}


def manifest_of(shards: Sequence[Shard], names: Sequence[str], facts: Mapping[str, Any]) -> bytes:
    """manifest.json; `names` are those of the shards in data/."""
    listed = [{**shard.__dict__, "file": name} for shard, name in zip(shards, names, strict=True)]
    return json.dumps({"format": FORMAT, **facts, "shards": listed}, indent=1, ensure_ascii=False).encode()


def manifest_in(folder: Place) -> dict[str, Any] | None:
    """What a folder holds; None where it is not whole, or of another format."""
    try:
        found = json.loads((folder / MANIFEST).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def described(names: Sequence[str], key: str) -> dict[str, bytes]:
    """The files that `datasets.load_from_disk` reads beside Arrow files."""
    state: dict[str, Any] = {
        **{"_data_files": [{"filename": name} for name in names], "_fingerprint": key[:16], "_split": "train"},
        **{"_format_columns": None, "_format_kwargs": {}, "_format_type": None, "_output_all_columns": False},
    }
    return {"state.json": json.dumps(state).encode(), "dataset_info.json": b"{}"}
