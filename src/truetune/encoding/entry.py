"""Entry: a folder that holds encoded data whole, or the parts of a run that can be taken up again.

manifest.json    what is here, and everything that shaped it; written last, so without it nothing is whole
data/            the shards
dropped.jsonl    examples that are not written, and why
rejected.jsonl   rows that could not be read, rendered or encoded, and why
.work/           a run that has not ended
.lock            held while a run writes
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

from truetune.data import atomic
from truetune.encoding.key import file_digest
from truetune.encoding.shard import ORIGINS, Shard
from truetune.errors import DataError, UsageError

FORMAT = 1
"""Of manifest.json."""
MANIFEST, DATA, ORIGIN, WORK, LOCK = "manifest.json", "data", "origins", ".work", ".lock"
ASIDE = ("dropped.jsonl", "rejected.jsonl")
OWN = {MANIFEST, DATA, ORIGIN, WORK, LOCK, *ASIDE}


class Entry:
    """One folder; every change of it is made under its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / WORK

    @contextmanager
    def locked(self, waiting: str | None = None) -> Iterator[None]:
        """Hold the lock; another run of truetune waits. Raises UsageError for a folder that is not ours to write."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            strangers = sorted(path.name for path in self.folder.iterdir() if path.name not in OWN)
        except OSError as error:
            raise UsageError(f"{self.folder}: can't be written: {error.strerror}") from None
        if strangers and not (self.folder / MANIFEST).is_file():
            raise UsageError(f"{self.folder} holds {strangers[0]}, which truetune did not write; name an empty folder")
        with filelock.FileLock(self.folder / LOCK):
            yield

    def manifest(self) -> dict[str, Any] | None:
        """What the folder holds; None where it is not whole."""
        try:
            found = json.loads((self.folder / MANIFEST).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("format") == FORMAT else None

    def damage(self, manifest: dict[str, Any]) -> str | None:
        """The first shard that is not as it was written; None where all are. Reads every byte."""
        for shard in manifest["shards"]:
            path = self.folder / DATA / shard["file"]
            try:
                if file_digest(path) != shard["digest"]:
                    return f"{path} is not as it was written"
            except OSError as error:
                return f"{path}: {error.strerror}"
        return None

    def begin(self, key: str) -> dict[int, Shard]:
        """Make ready to write, and give the shards that an interrupted run with the same key has left."""
        mark = self.work / "key"
        if not mark.is_file() or mark.read_text() != key:
            shutil.rmtree(self.work, ignore_errors=True)
            (self.work / DATA).mkdir(parents=True)
            atomic.write(mark, key.encode())
        found = {}
        for path in sorted((self.work / DATA).glob("*.json")):
            shard = Shard(**json.loads(path.read_bytes()))
            if (self.work / DATA / shard.file).is_file():
                found[shard.number] = shard
        for part in (self.work / DATA).glob(".*.part"):
            part.unlink()
        return found

    def publish(self, shards: Sequence[Shard], manifest: dict[str, Any], form: str) -> dict[str, Any]:
        """Put the shards of a finished run in the place of what stood there. Raises OSError."""
        staged, replaced = self.work / "staged", self.work / "replaced"
        for folder in (staged, replaced):
            shutil.rmtree(folder, ignore_errors=True)
        for name in (DATA, ORIGIN):
            (staged / name).mkdir(parents=True)
        names = [_name(i, len(shards), form) for i in range(len(shards))]
        for shard, name in zip(shards, names, strict=True):
            (self.work / DATA / shard.file).rename(staged / DATA / name)
            origins = self.work / DATA / f"{shard.number:05d}{ORIGINS}"
            if origins.is_file():
                origins.rename(staged / ORIGIN / f"{shard.number:05d}.parquet")
        if form == "arrow":
            _describe(staged / DATA, names, manifest["key"])
        for name in ASIDE:
            parts = [self.work / DATA / f"{shard.number:05d}.{name}" for shard in shards]
            atomic.write(staged / name, b"".join(part.read_bytes() for part in parts if part.is_file()))
        listed = [{**shard.__dict__, "file": name} for shard, name in zip(shards, names, strict=True)]
        body = json.dumps({"format": FORMAT, **manifest, "shards": listed}, indent=1, ensure_ascii=False).encode()
        atomic.write(staged / MANIFEST, body)

        (self.folder / MANIFEST).unlink(missing_ok=True)
        replaced.mkdir()
        for name in (*ASIDE, ORIGIN, DATA):
            if (self.folder / name).exists():
                (self.folder / name).rename(replaced / name)
            if (staged / name).is_file() or any((staged / name).iterdir()):
                (staged / name).rename(self.folder / name)
        atomic.sync(self.folder)
        (staged / MANIFEST).rename(self.folder / MANIFEST)
        atomic.sync(self.folder)
        shutil.rmtree(self.work)
        published: dict[str, Any] = json.loads(body)
        return published


def opened(folder: str | Path) -> tuple[Path, dict[str, Any]]:
    """(folder, manifest) of whole encoded data. Raises DataError where it is not whole."""
    entry = Entry(Path(folder))
    manifest = entry.manifest()
    if manifest is None:
        raise DataError(f"{folder}: holds no whole encoded data (no {MANIFEST}); run truetune encode again")
    return entry.folder, manifest


def _name(i: int, count: int, form: str) -> str:
    """As `datasets` names them: a split for `load_dataset`, plain for `load_from_disk`."""
    return f"{'train' if form == 'parquet' else 'data'}-{i:05d}-of-{count:05d}.{form}"


def _describe(folder: Path, names: Sequence[str], key: str) -> None:
    """What `datasets.load_from_disk` reads beside the Arrow files."""
    state: dict[str, Any] = {
        **{"_data_files": [{"filename": name} for name in names], "_fingerprint": key[:16], "_split": "train"},
        **{"_format_columns": None, "_format_kwargs": {}, "_format_type": None, "_output_all_columns": False},
    }
    atomic.write(folder / "state.json", json.dumps(state).encode())
    atomic.write(folder / "dataset_info.json", b"{}")
