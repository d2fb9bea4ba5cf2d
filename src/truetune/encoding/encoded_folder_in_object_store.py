"""A folder of encoded data in an object store, where nothing can be moved or locked and a file shows when it is whole.

`encoded_folder_on_disk` says which steps a run takes; here each is done with whole objects alone:

.work/<tag>/00000.json           what a shard consists of, with size and digest of each file; written before them
data/train-<tag>-00000.parquet   a shard, at its place from the beginning; the tag is a digest of what shaped it

manifest.json comes last, and then what records of ours list and it does not is removed. Two runs of the same key write
the same bytes. The rule of `data.guard_output_folder` holds, but for the digests: reading all that is there again
would cost as much as writing it, so that an object is ours if its name and its size are listed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

from truetune.data.guard_output_folder import (
    MOVE_ELSEWHERE,
    Input,
    ListedFile,
    parse_listing,
    refuse_unsafe_output_folder,
)
from truetune.data.remote_path import RemotePath
from truetune.encoding.cache_key import digest_of
from truetune.encoding.encode_shard import ORIGINS, Shard, why_first_example_was_left_out
from truetune.encoding.encoded_folder_layout import (
    ASIDE,
    DATA,
    MANIFEST,
    ORIGIN,
    PUBLISHED_NAMES,
    WORK,
    files_of_manifest,
    listing_entry,
    load_from_disk_metadata_files,
    manifest_bytes,
    read_manifest_or_none,
)
from truetune.errors import UsageError
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json

MAX_REQUESTS = 16
"""Requests under way. Chosen, not measured: each waits for the network most of its time."""
PUBLISHING = "publishing.json"
UNPUBLISHED_NAMES = re.compile(
    r"\.work/[0-9a-f]{16}/(\d{5,}\.(json|dropped\.jsonl|rejected\.jsonl)|publishing\.json)"
)
"""Names below the folder of what a run writes before it publishes"""
T = TypeVar("T")
R = TypeVar("R")


class ObjectStore(NamedTuple):
    """Where the parts of a run stand in an object store."""

    folder: RemotePath
    tag: str

    def write(self, name: str, body: Any) -> None:
        """Write an object of a shard."""
        self.at(name).write(body)

    def at(self, name: str) -> RemotePath:
        """The place of what `encode_shard` calls `00000.parquet`, `00000.json` and the like."""
        number, _, kind = name.partition(".")
        if f".{kind}" == ORIGINS:
            return self.folder / ORIGIN / f"{self.tag}-{number}.parquet"
        if kind in ("parquet", "arrow"):
            return (
                self.folder
                / DATA
                / f"{'train' if kind == 'parquet' else 'data'}-{self.tag}-{number}.{kind}"
            )
        return self.folder / WORK / self.tag / name


class EncodedFolderInStore:
    """One folder of a store."""

    def __init__(self, folder: RemotePath) -> None:
        self.folder = folder
        self._tag = ""

    def check_outside(self, inputs: Sequence[Input]) -> None:
        """Raise UsageError where the folder is an input, holds one, or lies inside one."""
        refuse_unsafe_output_folder(self.folder, inputs)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """A context for a run, which locks nothing; at its end, what records of ours list and no
        manifest does is removed. Raises UsageError for a folder that holds anything that
        truetune did not write, DataError.

        Raises UsageError for a folder that holds anything that truetune did not write, DataError.
        """
        for stranger, why in self._foreign_objects_with_reasons():
            raise UsageError(f"{stranger}: {why}; {MOVE_ELSEWHERE}")
        yield
        self._remove_objects_without_manifest_entry()

    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the folder; None where the folder is not whole."""
        return read_manifest_or_none(self.folder)

    def find_missing_file(self, manifest: Mapping[str, Any]) -> str | None:
        """The first file that is missing; None where all are there. Reads every byte.

        Raises UsageError for one that has changed since it was written.
        """

        listing = files_of_manifest(manifest)
        if listing is None:
            return f"{self.folder / MANIFEST} is of an older format"

        def damage_of(name: str) -> str | None:
            path = self.folder / name
            try:
                is_unchanged = listing_entry(path.read_bytes()) == listing[name]
            except FileNotFoundError as error:
                return f"{path}: {error.strerror}"
            if not is_unchanged:
                raise UsageError(
                    f"{path}: is not as truetune wrote it: its contents have changed; {MOVE_ELSEWHERE}"
                )
            return None

        return next(filter(None, _map_in_threads(damage_of, listing)), None)

    def has_unfinished_run(self, key: str) -> bool:
        """Has a run with this key been interrupted here, after its first shard?"""
        return any((self.folder / WORK / digest_of(key.encode())[:16]).iterdir())

    def start_or_resume(self, key: str) -> dict[int, Shard]:
        """Make ready to write, and give the shards that an interrupted run with the same key has left."""
        self._tag = digest_of(key.encode())[:16]
        sizes = self._object_sizes_by_name()
        whole: dict[int, Shard] = {}
        for shard in self._recorded_shards_of_run(self._tag):
            # The record came before the files: a shard whose files are missing, or are cut off, is made again.
            files = _shard_files(shard, self.store())
            if all(sizes.get(name) == entry.size for name, entry in files.items()):
                whole[shard.number] = shard
        return whole

    def discard_files_of_run(self) -> None:
        """Remove what the run has written, of which nothing is to be kept."""
        shards = self._recorded_shards_of_run(self._tag)
        self._remove_objects(
            [name for shard in shards for name in _shard_files(shard, self.store())]
        )
        self._remove_objects([f"{WORK}/{self._tag}/{shard.number:05d}.json" for shard in shards])

    def why_first_left_out_row_failed(self, shard: Shard) -> str | None:
        """Why the first row of a shard that was left out could not be encoded; None where none was."""
        return why_first_example_was_left_out(
            shard, lambda name: self.store().at(name).read_bytes()
        )

    def store(self) -> ObjectStore:
        """Where the shards of the run that has begun are written."""
        return ObjectStore(self.folder, self._tag)

    def publish(
        self, shards: Sequence[Shard], facts: Mapping[str, Any], form: str
    ) -> dict[str, Any]:
        """Write the manifest of a finished run, or give that of a run of the same key that was faster.

        Raises FileNotFoundError where a run of another key was, DataError where nothing can be written.
        """
        names = [self.store().at(shard.file).name for shard in shards]
        try:
            self._raise_if_shard_is_missing(names)
            aside = {name: self._join_lines_of_shards(name, shards) for name in ASIDE}
        except FileNotFoundError:
            # Two runs of one key write the same bytes: what the faster one has published is this run's result too.
            published_before = self.manifest()
            if published_before and published_before["key"] == facts["key"]:
                return published_before
            raise
        if form == "arrow":
            for name, text in load_from_disk_metadata_files(names, facts["key"]).items():
                aside[f"{DATA}/{name}"] = text
        files = {name: listing_entry(text) for name, text in aside.items()}
        for shard in shards:
            files |= _published_files(shard, self.store())
        # While dropped.jsonl is exchanged no manifest would be true: there is none, and this record says what is ours
        record = {
            "old": self._contents_of_all_records().whole,
            "new": {name: files[name] for name in aside},
        }
        # Without a size, for a store that is no object store may leave it cut off.
        record["new"][MANIFEST] = ListedFile(0, "")
        (self.folder / WORK / self._tag / PUBLISHING).write(json.dumps(record).encode())
        (self.folder / MANIFEST).remove()
        for name, text in aside.items():
            (self.folder / name).write(text)
        body = manifest_bytes(shards, names, facts, files)
        (self.folder / MANIFEST).write(body)
        published: dict[str, Any] = json.loads(body)
        return published

    def origins(self, shard: Mapping[str, Any]) -> RemotePath:
        """Where each row of a shard came from, if its own file does not say it."""
        stem = PurePath(shard["file"]).stem.partition("-")[2]
        return self.folder / ORIGIN / f"{stem}.parquet"

    def _raise_if_shard_is_missing(self, names: Sequence[str]) -> None:
        """Raise FileNotFoundError where a shard is gone: another run has ended here meanwhile."""
        folder = self.folder / DATA
        present = {path.name for path in folder.iterdir()}
        for name in names:
            if name not in present:
                raise (folder / name).missing_file_error()

    def _join_lines_of_shards(self, name: str, shards: Sequence[Shard]) -> bytes:
        """dropped.jsonl or rejected.jsonl of all shards. Raises FileNotFoundError where a part is gone."""
        parts = [f"{shard.number:05d}.{name}" for shard in shards]
        there = [
            self.store().at(part)
            for part, shard in zip(parts, shards, strict=True)
            if part in shard.files
        ]
        return b"".join(_map_in_threads(RemotePath.read_bytes, there))

    def _object_sizes_by_name(self) -> dict[str, int]:
        """All objects of the folder by their name below it, with their bytes."""
        skip = len(self.folder.path) + 1 if self.folder.path else 0
        return {
            path.path[skip:]: path.stat().st_size
            for path in self.folder.rglob("*")
            if path.is_file()
        }

    def _recorded_shards_of_run(self, tag: str) -> list[Shard]:
        """The shards that the records of one run tell of."""
        folder = self.folder / WORK / tag
        records = [
            path
            for path in folder.iterdir()
            if UNPUBLISHED_NAMES.fullmatch(f"{WORK}/{tag}/{path.name}")
            and path.suffix == ".json"
            and path.name != PUBLISHING
        ]
        return [
            shard for shard in _map_in_threads(_read_shard_or_none, records) if shard is not None
        ]

    def _contents_of_all_records(self) -> _Records:
        """What all records in the folder list."""
        whole = dict(files_of_manifest(self.manifest()) or {})
        unfinished: set[str] = set()
        for folder in (self.folder / WORK).iterdir():
            if not UNPUBLISHED_NAMES.fullmatch(f"{WORK}/{folder.name}/{PUBLISHING}"):
                continue
            for shard in self._recorded_shards_of_run(folder.name):
                unfinished.update(_shard_files(shard, ObjectStore(self.folder, folder.name)))
            try:
                record = parse_json((folder / PUBLISHING).read_bytes(), RESULT)
            except (FileNotFoundError, ValueError):
                continue
            old, new = (parse_listing(record.get(name)) for name in ("old", "new"))
            whole = (old or {}) | whole
            unfinished.update(new or ())
        return _Records(whole, unfinished)

    def _foreign_objects_with_reasons(self) -> Iterator[tuple[RemotePath, str]]:
        """What is in the folder and truetune did not write, with the reason."""
        there = self._object_sizes_by_name()
        records = self._contents_of_all_records()
        if (
            MANIFEST in there
            and MANIFEST not in records.unfinished
            and files_of_manifest(self.manifest()) is None
        ):
            yield (
                self.folder / MANIFEST,
                "was not written by truetune, or by an older version of it",
            )
        for name, size in there.items():
            if name == MANIFEST or name in records.unfinished or UNPUBLISHED_NAMES.fullmatch(name):
                continue
            if name not in records.whole:
                yield self.folder / name, "truetune did not write it"
            elif size != records.whole[name].size:
                yield self.folder / name, f"is not as truetune wrote it: it has {size:,} bytes"

    def _remove_objects_without_manifest_entry(self) -> None:
        """Remove what our records list and manifest.json does not, then the records. Nothing is
        removed while there is no manifest.
        """
        manifest = files_of_manifest(self.manifest())
        if manifest is None:
            # A run was interrupted: the records are what the next one continues from.
            return
        sizes, records = self._object_sizes_by_name(), self._contents_of_all_records()
        ours = {name for name, entry in records.whole.items() if sizes.get(name) == entry.size}
        ours |= records.unfinished & sizes.keys()
        # A record could name any object of the folder: only names that encode gives are removed.
        self._remove_objects(
            name for name in ours if PUBLISHED_NAMES.fullmatch(name) and name not in manifest
        )
        self._remove_objects(name for name in sizes if UNPUBLISHED_NAMES.fullmatch(name))
        if not any(path.is_file() for path in (self.folder / WORK).rglob("*")):
            (self.folder / WORK).remove()

    def _remove_objects(self, names: Iterable[str]) -> None:
        """Remove objects of the folder by their names."""
        _map_in_threads(RemotePath.remove, [self.folder / name for name in names])


class _Records(NamedTuple):
    """What the records in a folder say is ours."""

    whole: dict[str, ListedFile]
    """Objects of data that is, or was, published"""
    unfinished: set[str]
    """Names of objects of runs that have not ended; a store that is no object store may have cut them off"""


def _shard_files(shard: Shard, store: ObjectStore) -> dict[str, ListedFile]:
    """The files of a shard by their names below the folder."""
    skip = len(store.folder.path) + 1 if store.folder.path else 0
    return {
        store.at(name).path[skip:]: entry
        for name, entry in (parse_listing(shard.files) or {}).items()
    }


def _published_files(shard: Shard, store: ObjectStore) -> dict[str, ListedFile]:
    """The files of a shard that stay: not its lines of dropped.jsonl and rejected.jsonl, which stand below .work/."""
    return {
        name: entry
        for name, entry in _shard_files(shard, store).items()
        if not name.startswith(f"{WORK}/")
    }


def _read_shard_or_none(path: RemotePath) -> Shard | None:
    """The shard of a record; None where the record is cut off, as a store that is no object store
    may leave it.
    """
    try:
        return Shard(**parse_json(path.read_bytes(), RESULT))
    except ValueError:
        return None


def _map_in_threads(work: Callable[[T], R], things: Iterable[T]) -> list[R]:
    """Apply `work` to each thing, in order; in threads, since each waits for the network. Raises
    what one of them raised.
    """
    with ThreadPoolExecutor(MAX_REQUESTS) as pool:
        return list(pool.map(work, things))
