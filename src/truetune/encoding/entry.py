"""Entry: a folder that holds encoded data whole, or the parts of a run that can be taken up again.

On a disk, a run writes below .work/ and moves all of it to its place at its end. `objects` does the same where nothing
can be moved.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from truetune.data import atomic
from truetune.data.remote import Place, Remote, place
from truetune.encoding.key import file_digest
from truetune.encoding.layout import (
    ASIDE,
    DATA,
    LOCK,
    MANIFEST,
    ORIGIN,
    OWN,
    WORK,
    described,
    manifest_in,
    manifest_of,
)
from truetune.encoding.objects import ObjectEntry
from truetune.encoding.shard import ORIGINS, Shard
from truetune.errors import DataError, UsageError


class Folder(NamedTuple):
    """Where the parts of a run stand on a disk."""

    path: Path

    def write(self, name: str, body: Any) -> None:
        atomic.write(self.path / name, body)


class Entry:
    """One folder; every change of it is made under its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / WORK

    @contextmanager
    def locked(self) -> Iterator[None]:
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
        return manifest_in(self.folder)

    def damage(self, manifest: Mapping[str, Any]) -> str | None:
        """The first shard that is not as it was written; None where all are. Reads every byte."""
        for shard in manifest["shards"]:
            path = self.folder / DATA / shard["file"]
            try:
                if file_digest(path) != shard["digest"]:
                    return f"{path} is not as it was written"
            except OSError as error:
                return f"{path}: {error.strerror}"
        return None

    def begun(self, key: str) -> bool:
        """Has a run with this key been interrupted here?"""
        mark = self.work / "key"
        return mark.is_file() and mark.read_text() == key

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

    def store(self) -> Folder:
        """Where the shards of the run that has begun are written."""
        return Folder((self.work / DATA).absolute())

    def origins(self, shard: Mapping[str, Any]) -> Path:
        """Where each row of a shard came from, if its own file does not say it."""
        return self.folder / ORIGIN / f"{shard['number']:05d}.parquet"

    def publish(self, shards: Sequence[Shard], facts: Mapping[str, Any], form: str) -> dict[str, Any]:
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
            for name, text in described(names, facts["key"]).items():
                atomic.write(staged / DATA / name, text)
        for name in ASIDE:
            parts = [self.work / DATA / f"{shard.number:05d}.{name}" for shard in shards]
            atomic.write(staged / name, b"".join(part.read_bytes() for part in parts if part.is_file()))
        body = manifest_of(shards, names, facts)
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


AnyEntry = Entry | ObjectEntry


def entry_of(folder: str | Path | Remote) -> AnyEntry:
    """The entry at a path or a URI. Raises DataError for a URI that Arrow has no filesystem for."""
    where = place(folder)
    return ObjectEntry(where) if isinstance(where, Remote) else Entry(where)


def opened(folder: str | Path | Remote) -> tuple[Place, dict[str, Any]]:
    """(folder, manifest) of whole encoded data. Raises DataError where it is not whole."""
    entry = entry_of(folder)
    manifest = entry.manifest()
    if manifest is None:
        raise DataError(f"{folder}: holds no whole encoded data (no {MANIFEST}); run truetune encode again")
    return entry.folder, manifest


def _name(i: int, count: int, form: str) -> str:
    """As `datasets` names them: a split for `load_dataset`, plain for `load_from_disk`."""
    return f"{'train' if form == 'parquet' else 'data'}-{i:05d}-of-{count:05d}.{form}"
