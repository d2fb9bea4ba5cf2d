"""ObjectEntry: encoded data in an object store, where nothing can be moved or locked and a file shows when it is whole.

data/train-<tag>-00000.parquet   a shard, at its place from the beginning; the tag is a digest of what shaped it
.work/<tag>/00000.json           written after it: it is whole

manifest.json comes last, and then what it does not name is removed. Two runs of the same key write the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

from truetune.data.remote import Remote
from truetune.encoding.layout import ASIDE, DATA, MANIFEST, ORIGIN, OWN, WORK, described, manifest_in, manifest_of
from truetune.encoding.shard import ORIGINS, Shard, digest_of
from truetune.errors import UsageError

AT_ONCE = 16
"""Requests under way."""
COUNTS = {"dropped.jsonl": "dropped_documents", "rejected.jsonl": "rejected"}
"""Which count of a shard says whether it has such a part."""
T = TypeVar("T")
R = TypeVar("R")


class Objects(NamedTuple):
    """Where the parts of a run stand in an object store."""

    folder: Remote
    tag: str

    def write(self, name: str, body: Any) -> None:
        self.at(name).write(body)

    def at(self, name: str) -> Remote:
        """The place of what `encode_shard` calls `00000.parquet`, `00000.json` and the like."""
        number, _, kind = name.partition(".")
        if f".{kind}" == ORIGINS:
            return self.folder / ORIGIN / f"{self.tag}-{number}.parquet"
        if kind in ("parquet", "arrow"):
            return self.folder / DATA / f"{'train' if kind == 'parquet' else 'data'}-{self.tag}-{number}.{kind}"
        return self.folder / WORK / self.tag / name


class ObjectEntry:
    """One folder of a store."""

    def __init__(self, folder: Remote) -> None:
        self.folder = folder
        self._tag = ""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nothing is locked; at the end, what no manifest names is removed. Raises UsageError, DataError."""
        names = sorted(path.name for path in self.folder.iterdir())
        if MANIFEST not in names and (strangers := [name for name in names if name not in OWN]):
            raise UsageError(f"{self.folder} holds {strangers[0]}, which truetune did not write; name an empty folder")
        yield
        self._sweep()

    def manifest(self) -> dict[str, Any] | None:
        """What the folder holds; None where it is not whole."""
        return manifest_in(self.folder)

    def damage(self, manifest: Mapping[str, Any]) -> str | None:
        """The first shard that is not as it was written; None where all are. Reads every byte."""

        def look(shard: Mapping[str, Any]) -> str | None:
            path = self.folder / DATA / shard["file"]
            try:
                return None if digest_of(path.read_bytes()) == shard["digest"] else f"{path} is not as it was written"
            except FileNotFoundError as error:
                return f"{path}: {error.strerror}"

        return next(filter(None, _at_once(look, manifest["shards"])), None)

    def begun(self, key: str) -> bool:
        """Has a run with this key been interrupted here, after its first shard?"""
        return any((self.folder / WORK / digest_of(key.encode())[:16]).iterdir())

    def begin(self, key: str) -> dict[int, Shard]:
        """Make ready to write, and give the shards that an interrupted run with the same key has left."""
        self._tag = digest_of(key.encode())[:16]
        whole = {path.name for path in (self.folder / DATA).iterdir()}
        beside = [path for path in (self.folder / WORK / self._tag).iterdir() if path.suffix == ".json"]
        found = [shard for shard in _at_once(_shard, beside) if shard and self.store().at(shard.file).name in whole]
        return {shard.number: shard for shard in found}

    def store(self) -> Objects:
        """Where the shards of the run that has begun are written."""
        return Objects(self.folder, self._tag)

    def publish(self, shards: Sequence[Shard], facts: Mapping[str, Any], form: str) -> dict[str, Any]:
        """Write the manifest of a finished run, or give that of a run of the same key that was faster.

        Raises FileNotFoundError where a run of another key was, DataError where nothing can be written.
        """
        names = [self.store().at(shard.file).name for shard in shards]
        try:
            self._all_there(names)
            aside = {name: self._joined(name, shards) for name in ASIDE}
        except FileNotFoundError:
            if (found := self.manifest()) and found["key"] == facts["key"]:
                return found
            raise
        if form == "arrow":
            aside |= {f"{DATA}/{name}": text for name, text in described(names, facts["key"]).items()}
        for name, text in aside.items():
            (self.folder / name).write(text)
        body = manifest_of(shards, names, facts)
        (self.folder / MANIFEST).write(body)
        published: dict[str, Any] = json.loads(body)
        return published

    def origins(self, shard: Mapping[str, Any]) -> Remote:
        """Where each row of a shard came from, if its own file does not say it."""
        stem = PurePath(shard["file"]).stem.partition("-")[2]
        return self.folder / ORIGIN / f"{stem}.parquet"

    def _all_there(self, names: Sequence[str]) -> None:
        """Raises FileNotFoundError where a shard is gone: another run has ended here meanwhile."""
        folder = self.folder / DATA
        whole = {path.name for path in folder.iterdir()}
        if gone := [name for name in names if name not in whole]:
            raise (folder / gone[0]).missing()

    def _joined(self, name: str, shards: Sequence[Shard]) -> bytes:
        """dropped.jsonl or rejected.jsonl of all shards. Raises FileNotFoundError where a part is gone."""
        count = COUNTS[name]
        parts = [self.store().at(f"{shard.number:05d}.{name}") for shard in shards if getattr(shard, count)]
        return b"".join(_at_once(Remote.read_bytes, parts))

    def _sweep(self) -> None:
        manifest = self.manifest()
        if manifest is None:
            return
        shards = manifest["shards"]
        keep = {DATA: {shard["file"] for shard in shards}, ORIGIN: {self.origins(shard).name for shard in shards}}
        if any(name.endswith(".arrow") for name in keep[DATA]):
            keep[DATA] |= set(described((), ""))
        for name, kept in keep.items():
            _at_once(Remote.remove, [path for path in (self.folder / name).iterdir() if path.name not in kept])
        (self.folder / WORK).remove()


def _shard(path: Remote) -> Shard | None:
    """None where it is cut off, as a store that is no object store may leave it."""
    try:
        return Shard(**json.loads(path.read_bytes()))
    except ValueError:
        return None


def _at_once(work: Callable[[T], R], things: Iterable[T]) -> list[R]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, things))
