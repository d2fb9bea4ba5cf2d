"""A folder of encoded data on a disk: what it holds, how a run writes it, and how a killed run is resumed.

A run takes these steps, which `encode_run.encode` calls in this order; `encoded_object_store` has the same methods:

    check_outside        the folder is no input of the run
    locked               nobody else writes, and nothing in the folder is a stranger's; ends what a killed run published
    manifest             what is there whole; of the same key, and with no file missing, it is this run's result
    start_or_resume      the shards that an interrupted run with the same key has left
    store                where the shards are written, one after the other
    publish              all shards in the place of what stood there before

On a disk, a run writes below .work/ and moves all of it to its place at its end. `encoded_object_store` does the same
where nothing can be moved.

Three records say whose a file is (see `data.guard_output_folder`): manifest.json lists what is published;
.work/owner.json marks .work/ as a run's with a key, and NNNNN.json in it lists the files of a shard before they are
written; .work/publish.json lists what is about to be replaced, and by what. A run that was killed while it published
is ended by the next one: the record says which files were to go, and which are to come.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from truetune.data import write_atomically
from truetune.data.guard_output_folder import (
    HALF_PUBLISHED,
    MOVE_ELSEWHERE,
    SHARDS_KEPT,
    ForeignFile,
    Input,
    ListedFile,
    Listing,
    StatDigests,
    find_foreign_files,
    foreign_file_error,
    is_empty_lock_file,
    is_unchanged_listed_file,
    parse_listing,
    refuse_unsafe_output_folder,
    remove_empty_folders,
    remove_unchanged_listed_files,
)
from truetune.data.remote_path import DataPath, RemotePath, parse_data_path
from truetune.encoding.encode_shard import ORIGINS, Shard, why_first_example_was_left_out
from truetune.encoding.encoded_folder_in_object_store import EncodedFolderInStore
from truetune.encoding.encoded_folder_layout import (
    ASIDE,
    DATA,
    FORMAT,
    LOCK_NAME,
    MANIFEST,
    ORIGIN,
    WORK,
    files_of_manifest,
    listing_entry,
    load_from_disk_metadata_files,
    manifest_bytes,
    read_manifest_or_none,
    shard_name,
)
from truetune.errors import DataError, UsageError
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json

OWNER, PUBLISH = "owner.json", "publish.json"
# The whole file is compared with what we would write, byte for byte: any other owner.json is somebody else's.
OWNER_HEAD = f'{{"truetune": "encode, unfinished", "format": {FORMAT}, "key": "'


class DiskStore(NamedTuple):
    """Where the parts of a run stand on a disk."""

    path: Path

    def write(self, name: str, body: Any) -> None:
        """Write a file of a shard, whole or not at all."""
        write_atomically.write_atomically(self.path / name, body)


class Publication(NamedTuple):
    """What .work/publish.json says: how one whole data set takes the place of another."""

    old: Listing
    """What is there, manifest.json too; empty in a new folder"""
    new: Listing
    """What is to be there, manifest.json too"""
    sources: Mapping[str, str]
    """Where each new file stands below .work/ until it is moved"""

    def as_json(self) -> bytes:
        """The bytes of .work/publish.json."""
        return json.dumps({"format": FORMAT, **self._asdict()}).encode()

    @classmethod
    def read(cls, path: Path) -> Publication | None:
        """Read .work/publish.json; None where there is none, or it was not written by truetune."""
        record = _read_json_object_or_none(path)
        if record is None or record.get("format") != FORMAT:
            return None
        old = parse_listing(record.get("old"))
        new = parse_listing(record.get("new"))
        sources = record.get("sources")
        if old is None or new is None or not isinstance(sources, dict):
            return None
        if sources.keys() != new.keys():
            return None
        # Files are moved from these names: one that points out of .work/ would move somebody else's.
        if not all(
            isinstance(source, str) and _is_moved_from_work_to_place(source)
            for source in sources.values()
        ):
            return None
        return cls(old, new, sources)


class EncodedFolderOnDisk:
    """One folder; every change of it is made under its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / WORK
        self._digest = StatDigests()

    def check_outside(self, inputs: Sequence[Input]) -> None:
        """Raise UsageError where the folder is an input, holds one, or lies inside one."""
        refuse_unsafe_output_folder(self.folder, inputs)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; another run of truetune waits.

        Raises UsageError for a folder that holds anything that truetune did not write, before anything is changed.
        """
        lock = self.folder / LOCK_NAME
        try:
            # A lock of ours is taken first, for another process may be writing. Where there is none, nothing is made
            # in a folder before it is known to be ours; if one has come meanwhile, what was seen was half written.
            if (
                not is_empty_lock_file(lock)
                and (stranger := self._first_foreign_file()) is not None
                and not is_empty_lock_file(lock)
            ):
                raise foreign_file_error(stranger)
            self.folder.mkdir(parents=True, exist_ok=True)
            held = filelock.FileLock(lock).acquire()
        except OSError as error:
            raise UsageError(
                f"{error.filename or self.folder}: can't be written: {error.strerror}"
            ) from None
        with held:
            self._refuse_foreign_files()
            self._finish_publishing()
            self._refuse_foreign_files()
            yield

    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the folder; None where the folder is not whole."""
        return read_manifest_or_none(self.folder)

    def find_missing_file(self, manifest: Mapping[str, Any]) -> str | None:
        """The first file that is missing; None where all are there. What has changed, `locked` has refused."""
        listing = files_of_manifest(manifest)
        for name in listing or ():
            if not (self.folder / name).exists():
                return f"{self.folder / name}: No such file or directory"
        return None if listing is not None else f"{self.folder / MANIFEST} is of an older format"

    def has_unfinished_run(self, key: str) -> bool:
        """Has a run with this key been interrupted here?"""
        return _run_key_of_work_folder(self.work) == key

    def start_or_resume(self, key: str) -> dict[int, Shard]:
        """Make ready to write, and give the shards that an interrupted run with the same key has left."""
        owner = _run_key_of_work_folder(self.work)
        if owner != key:
            self._remove_recorded_work_files()
            self.work.mkdir(exist_ok=True)
            write_atomically.write_atomically(self.work / OWNER, _owner_file_bytes(key))
        (self.work / DATA).mkdir(exist_ok=True)
        self._remove_partial_files()
        whole: dict[int, Shard] = {}
        for path, shard in self._recorded_shards():
            if all(
                is_unchanged_listed_file(self.work / DATA / name, entry, self._digest)
                for name, entry in _shard_files(shard)
            ):
                whole[shard.number] = shard
            else:
                # Killed between its record and its last file: what is there of it is ours by that record.
                remove_unchanged_listed_files(
                    self.work / DATA, dict(_shard_files(shard)), digest=self._digest
                )
                path.unlink(missing_ok=True)
        # Removing the last file of a folder removes the folder.
        (self.work / DATA).mkdir(exist_ok=True)
        return whole

    def store(self) -> DiskStore:
        """Where the shards of the run that has begun are written."""
        return DiskStore((self.work / DATA).absolute())

    def discard_files_of_run(self) -> None:
        """Remove what the run has written, of which nothing is to be kept. Raises OSError."""
        self._remove_recorded_work_files()

    def why_first_left_out_row_failed(self, shard: Shard) -> str | None:
        """Why the first row of a shard that was left out could not be encoded; None where none was."""
        return why_first_example_was_left_out(
            shard, lambda name: (self.work / DATA / name).read_bytes()
        )

    def origins(self, shard: Mapping[str, Any]) -> Path:
        """Where each row of a shard came from, if its own file does not say it."""
        return self.folder / ORIGIN / f"{shard['number']:05d}.parquet"

    def publish(
        self, shards: Sequence[Shard], facts: Mapping[str, Any], form: str
    ) -> dict[str, Any]:
        """Put the shards of a finished run in the place of what stood there.

        Raises OSError, and UsageError where something has come into the folder meanwhile that truetune did not write.
        """
        names = [shard_name(i, len(shards), form) for i in range(len(shards))]
        # By the place of each file in the folder: what is listed of it, and where it stands below .work/ until then.
        new: dict[str, ListedFile] = {}
        sources: dict[str, str] = {}
        for shard, name in zip(shards, names, strict=True):
            for part, entry in _shard_files(shard):
                if part == shard.file:
                    final = f"{DATA}/{name}"
                elif part.endswith(ORIGINS):
                    final = f"{ORIGIN}/{shard.number:05d}.parquet"
                else:
                    continue  # dropped and rejected lines, which become one file of all shards
                new[final] = entry
                sources[final] = f"{DATA}/{part}"
        bodies = self._files_beside_shards_by_place(shards, names, facts["key"], form)
        new |= {name: listing_entry(text) for name, text in bodies.items()}
        bodies[MANIFEST] = manifest_bytes(shards, names, facts, new)
        new[MANIFEST] = listing_entry(bodies[MANIFEST])
        sources |= {name: Path(name).name for name in bodies}
        publication = Publication(self._list_published_files(), new, sources)
        # The record of what is to come stands before the first of it: a run that is killed here is ended by the next.
        write_atomically.write_atomically(self.work / PUBLISH, publication.as_json())
        for name, text in bodies.items():
            write_atomically.write_atomically(self.work / sources[name], text)
        self._refuse_foreign_files(SHARDS_KEPT)
        self._carry_out_publication(publication)
        published: dict[str, Any] = json.loads(bodies[MANIFEST])
        return published

    def _files_beside_shards_by_place(
        self, shards: Sequence[Shard], names: Sequence[str], key: str, form: str
    ) -> dict[str, bytes]:
        """The files beside the shards, by their places: what `datasets` reads, dropped.jsonl and rejected.jsonl."""
        bodies: dict[str, bytes] = {}
        if form == "arrow":
            for name, text in load_from_disk_metadata_files(names, key).items():
                bodies[f"{DATA}/{name}"] = text
        for aside in ASIDE:
            parts = [self.work / DATA / f"{shard.number:05d}.{aside}" for shard in shards]
            bodies[aside] = b"".join(part.read_bytes() for part in parts if part.is_file())
        return bodies

    def _list_published_files(self) -> dict[str, ListedFile]:
        """The files that are published, as manifest.json lists them, and manifest.json itself;
        empty without a manifest of ours.
        """
        listing = files_of_manifest(self.manifest())
        if listing is None:
            return {}
        return {**listing, MANIFEST: listing_entry((self.folder / MANIFEST).read_bytes())}

    def _carry_out_publication(self, publication: Publication) -> None:
        """Remove the old files, move the new ones to their places, manifest.json last. Killed at any point, it is taken
        up again by `_finish_publishing`."""
        waiting = [
            name
            for name, source in publication.sources.items()
            if os.path.lexists(self.work / source)
        ]
        if MANIFEST in waiting:
            # manifest.json goes first: what is there is whole, or nothing says that it is
            if MANIFEST in publication.old:
                remove_unchanged_listed_files(
                    self.folder, publication.old, digest=self._digest, only=[MANIFEST]
                )
            write_atomically.sync_folder_to_disk(self.folder)
            # What is not waiting was moved by the run that was killed: it is new already, and stays.
            outdated = [
                name for name in publication.old if name in waiting or name not in publication.new
            ]
            remove_unchanged_listed_files(
                self.folder, publication.old, digest=self._digest, only=outdated
            )
            for name in sorted(waiting, key=lambda name: name == MANIFEST):
                self._move_to_place(publication, name)
            write_atomically.sync_folder_to_disk(self.folder)
        self._remove_recorded_work_files()

    def _move_to_place(self, publication: Publication, name: str) -> None:
        """Move a new file to its place, where nothing may stand. Raises UsageError where something does."""
        target = self.folder / name
        if os.path.lexists(target):
            raise foreign_file_error(
                ForeignFile(target, "has come here while truetune wrote"), HALF_PUBLISHED
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        if name == MANIFEST:
            # All others are on the disk before the file that says so: power may fail between two renames.
            for folder in {(self.folder / other).parent for other in publication.new}:
                write_atomically.sync_folder_to_disk(folder)
        (self.work / publication.sources[name]).rename(target)

    def _finish_publishing(self) -> None:
        """End what a killed run has begun to publish, or forget it where it had not yet changed anything."""
        publication = self._unfinished_publication()
        if publication is None:
            return
        ready = all(
            is_unchanged_listed_file(self.work / publication.sources[name], entry, self._digest)
            or is_unchanged_listed_file(self.folder / name, entry, self._digest)
            for name, entry in publication.new.items()
        )
        if ready:
            self._carry_out_publication(publication)
        else:
            # Killed while it wrote the describing files. The shards stay, for the next run with this key.
            describing = {
                publication.sources[name]: entry
                for name, entry in publication.new.items()
                if not publication.sources[name].startswith(f"{DATA}/")
            }
            remove_unchanged_listed_files(self.work, describing, digest=self._digest)
            (self.work / PUBLISH).unlink()

    def _refuse_foreign_files(self, instead: str = MOVE_ELSEWHERE) -> None:
        """Raise UsageError, which ends with `instead`, for the first thing that no record of ours lists as it is."""
        if (stranger := self._first_foreign_file()) is not None:
            raise foreign_file_error(stranger, instead)

    def _first_foreign_file(self) -> ForeignFile | None:
        """The first thing in the folder that no record of ours lists as it is; None where all is ours."""
        return next(self._foreign_files(), None) or next(self._foreign_files_in_work(), None)

    def _foreign_files(self) -> Iterator[ForeignFile]:
        """What is in the folder and no record of truetune lists as it is."""
        manifest = self.manifest()
        listing = files_of_manifest(manifest)
        if manifest is not None and listing is None:
            yield ForeignFile(
                self.folder / MANIFEST, "was not written by truetune, or by an older version of it"
            )
        publication = self._unfinished_publication()
        old: Listing = listing or {}
        if publication is not None and listing is None:
            old = {name: entry for name, entry in publication.old.items() if name != MANIFEST}

        def also_ours(path: Path) -> bool:
            entry = None if publication is None else publication.new.get(path.as_posix())
            return self._is_ours_without_manifest_entry(
                path, entry, has_listing=listing is not None
            )

        folders = (DATA, ORIGIN) if publication is not None else ()
        yield from find_foreign_files(
            self.folder, old, digest=self._digest, folders=folders, also_ours=also_ours
        )

    def _is_ours_without_manifest_entry(
        self, path: Path, entry: ListedFile | None, *, has_listing: bool
    ) -> bool:
        """Is something in the folder ours, though no manifest lists it: the lock, manifest.json itself, .work/?

        Args:
            path: below the folder.
            entry: what a run that was killed while it published lists of it.
            has_listing: is manifest.json one that we wrote?
        """
        here = self.folder / path
        if path == Path(LOCK_NAME):
            return is_empty_lock_file(here)
        if path == Path(MANIFEST):
            return has_listing and not here.is_symlink()
        if path == Path(WORK):
            return here.is_dir() and not here.is_symlink()
        return is_unchanged_listed_file(here, entry, self._digest)

    def _foreign_files_in_work(self) -> Iterator[ForeignFile]:
        """What is in .work/ and no record of truetune lists as it is."""
        if not self.work.is_dir():
            return
        if _run_key_of_work_folder(self.work) is None:
            yield from find_foreign_files(
                self.work, {}, also_ours=lambda path: _is_partial_owner_file(self.work / path)
            )
            return
        records = {path for path, _ in self._recorded_shards()}
        published = self._unfinished_publication() is not None

        def also_ours(path: Path) -> bool:
            here = self.work / path
            if here.is_symlink() or not here.is_file():
                return False
            return (
                path == Path(OWNER)
                or (path == Path(PUBLISH) and published)
                or here in records
                or _is_partial_file_of_run(path)
            )

        yield from find_foreign_files(
            self.work,
            self._listed_files_below_work_folder(),
            digest=self._digest,
            folders=(DATA,),
            also_ours=also_ours,
        )

    def _unfinished_publication(self) -> Publication | None:
        """What a run was about to publish; None where there is no such run."""
        return (
            Publication.read(self.work / PUBLISH)
            if _run_key_of_work_folder(self.work) is not None
            else None
        )

    def _listed_files_below_work_folder(self) -> dict[str, ListedFile]:
        """All files below .work/ that a record lists."""
        listing: dict[str, ListedFile] = {}
        for _, shard in self._recorded_shards():
            for name, entry in _shard_files(shard):
                listing[f"{DATA}/{name}"] = entry
        publication = self._unfinished_publication()
        if publication is not None:
            for name, entry in publication.new.items():
                listing[publication.sources[name]] = entry
        return listing

    def _recorded_shards(self) -> Iterator[tuple[Path, Shard]]:
        """The records in .work/data/, and the shards that they tell of."""
        for path in sorted((self.work / DATA).glob("*.json")):
            body = _read_json_object_or_none(path)
            if body is None or path.is_symlink() or not _is_file_name_in_work_data(path.name):
                continue
            try:
                shard = Shard(**body)
            except TypeError:
                continue
            if parse_listing(shard.files) is not None and all(
                map(_is_file_name_in_work_data, shard.files)
            ):
                yield path, shard

    def _remove_recorded_work_files(self) -> None:
        """Remove .work/ as far as records list what is in it; what they don't list stays. Raises OSError."""
        if _run_key_of_work_folder(self.work) is not None:
            remove_unchanged_listed_files(
                self.work, self._listed_files_below_work_folder(), digest=self._digest
            )
            for path, _ in list(self._recorded_shards()):
                path.unlink()
            self._remove_partial_files()
            (self.work / PUBLISH).unlink(missing_ok=True)
            remove_empty_folders([self.work / DATA])
            if {path.name for path in self.work.iterdir()} == {OWNER}:
                (self.work / OWNER).unlink()
        elif self.work.is_dir():
            for path in self.work.iterdir():
                if _is_partial_owner_file(path):
                    path.unlink()
        remove_empty_folders([self.work])

    def _remove_partial_files(self) -> None:
        """Remove files that a killed run of ours was writing."""
        for folder in (self.work, self.work / DATA):
            for path in folder.glob(".*.part"):
                if (
                    _is_partial_file_of_run(path.relative_to(self.work))
                    and path.is_file()
                    and not path.is_symlink()
                ):
                    path.unlink()


IN_WORK = (OWNER, PUBLISH, MANIFEST, "state.json", "dataset_info.json", *ASIDE)
PARTS = (".json", ".parquet", ".arrow", ORIGINS, *(f".{name}" for name in ASIDE))
"""Of the names in .work/data/, behind the number of a shard"""


def _is_partial_file_of_run(path: Path) -> bool:
    """Is this, below .work/, the name of a file that a run of ours is writing?"""
    part = write_atomically.PARTIAL_NAME.fullmatch(path.name)
    if part is None:
        return False
    if path.parent == Path():
        return part["name"] in IN_WORK
    return path.parent == Path(DATA) and _is_file_name_in_work_data(part["name"])


def _is_file_name_in_work_data(name: str) -> bool:
    """May a run write a file of this name into .work/data/?"""
    number, dot, rest = name.partition(".")
    return number.isdecimal() and number.isascii() and len(number) >= 5 and dot + rest in PARTS


def _is_moved_from_work_to_place(source: str) -> bool:
    """Is this, below .work/, the name of a file that a run writes and then moves to its place?"""
    folder, slash, name = source.rpartition("/")
    return name in IN_WORK if not slash else folder == DATA and _is_file_name_in_work_data(name)


def _shard_files(shard: Shard) -> Iterator[tuple[str, ListedFile]]:
    """The files of a shard by their names in .work/data/."""
    yield from (parse_listing(shard.files) or {}).items()


def _owner_file_bytes(key: str) -> bytes:
    """The bytes of .work/owner.json, which names the run by its key."""
    return f'{OWNER_HEAD}{key}"}}'.encode()


def _run_key_of_work_folder(work: Path) -> str | None:
    """The key of the run that a .work/ belongs to; None where it is not ours."""
    path = work / OWNER
    body = _read_json_object_or_none(path)
    # A link could lead to a folder of another run, or of the user.
    if body is None or path.is_symlink() or work.is_symlink():
        return None
    key = body.get("key")
    if not isinstance(key, str) or path.read_bytes() != _owner_file_bytes(key):
        return None
    return key


def _is_partial_owner_file(path: Path) -> bool:
    """Is this an owner.json that a killed run was just writing: under its temporary name, with the beginning of it?"""
    part = write_atomically.PARTIAL_NAME.fullmatch(path.name)
    if part is None or part["name"] != OWNER or path.is_symlink() or not path.is_file():
        return False
    body, head = path.read_bytes(), OWNER_HEAD.encode()
    return head.startswith(body) or body.startswith(head)


def _read_json_object_or_none(path: Path) -> dict[str, Any] | None:
    """A JSON object of ours; None where there is none, or something else."""
    try:
        value = parse_json(path.read_bytes(), RESULT)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


AnyEncodedFolder = EncodedFolderOnDisk | EncodedFolderInStore


def encoded_folder_at(folder: str | Path | RemotePath) -> AnyEncodedFolder:
    """The folder of encoded data at a path or a URI, on a disk or in a store. Raises DataError for
    a URI that Arrow has no filesystem for.
    """
    where = parse_data_path(folder)
    return (
        EncodedFolderInStore(where) if isinstance(where, RemotePath) else EncodedFolderOnDisk(where)
    )


def open_whole_encoded_folder(folder: str | Path | RemotePath) -> tuple[DataPath, dict[str, Any]]:
    """The folder of whole encoded data at a path or a URI, with its manifest. Raises DataError
    where it is not whole.
    """
    entry = encoded_folder_at(folder)
    manifest = entry.manifest()
    if manifest is None:
        raise DataError(
            f"{folder}: holds no whole encoded data (no {MANIFEST}); run truetune encode again"
        )
    return entry.folder, manifest
