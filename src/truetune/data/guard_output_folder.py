"""Decides what truetune may replace or remove in an output folder, and what it must leave as it is.

Every command that writes asks this module (folders) or `guard_output_file` (single files) first. One rule holds for
all:

- An output must not be an input, hold one, or lie inside one. It must not stand inside encoded data or a checkpoint,
  nor touch another output of the same command. Links are followed before paths are compared, and files
  are compared by device and inode as well, so that neither a symbolic nor a hard link gets around it.
- A file in an output folder is ours only if a record of ours lists its name, its size and its digest, and it still has
  these. Everything else is a stranger: a file that nobody lists, one that was edited or replaced since it was written,
  any symbolic link, any folder that holds nothing of ours.
- A stranger is never moved, replaced or removed. Where it stands in the way, the command ends before it writes
  anything, and names it.

Only names that the record lists are removed, one by one, and folders only once they are empty. There is no recursive
removal anywhere. The trade-off: files are read again for their digest before they are replaced; a file whose inode,
size and times have not changed since it was last read by this process is not read twice.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from truetune.checkpoint.read_run_and_check_checkpoints import RECORD_FORMAT, WHOLE_FILE
from truetune.data.remote_path import DataPath, RemotePath
from truetune.errors import DataError, UsageError
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.read_files_within_limits import read_bytes_within_limit

LOCK_NAME = ".lock"
"""An empty file, held while a command writes into a folder."""
MOVE_ELSEWHERE = "nothing was written: move it elsewhere, or name another folder with -o"
SHARDS_KEPT = (
    "what is encoded is kept in .work, and nothing was replaced: move it elsewhere, and run the"
    " command again"
)
"""What to do about something that came while shards were made"""
HALF_PUBLISHED = (
    "the old data is removed, the new data not yet whole: move it elsewhere, and run the command"
    " again"
)
"""What to do about something that came once manifest.json was removed: the same command then completes the folder"""


class ListedFile(NamedTuple):
    """What a record says of one file."""

    size: int
    digest: str


Listing = Mapping[str, ListedFile]
"""The files of a folder by their path below it, with slashes."""
Digest = Callable[[Path], str]


class ForeignFile(NamedTuple):
    """Something in a folder that no record of ours accounts for."""

    path: Path
    why: str


class Input(NamedTuple):
    """Something that a command reads."""

    what: str
    """What it is to the command: `data`, `the tokenizer`, `the base model`, ..."""
    place: DataPath


class Output(NamedTuple):
    """Something that a command writes."""

    option: str
    """The option or argument that names it"""
    place: DataPath


class StatDigests:
    """Digests of files; a file that has not changed since it was last asked for is not read again."""

    def __init__(self, read: Digest | None = None) -> None:
        self._read = read or file_digest
        self._known: dict[tuple[int, ...], str] = {}

    def __call__(self, path: Path) -> str:
        """Raises OSError."""
        # Times have nanoseconds, and a program can't set ctime: an edit that keeps size and mtime
        # is seen too.
        status = path.stat()
        identity = (
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
        if identity not in self._known:
            self._known[identity] = self._read(path)
        return self._known[identity]


def file_digest(path: Path) -> str:
    """The blake2b digest of a file's bytes, of 20 bytes in hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def parse_listing(value: Any) -> dict[str, ListedFile] | None:
    """The listing of files in one of truetune's records: name -> size and digest. None if it is
    anything else, or a name leads out of its folder.
    """
    if not isinstance(value, dict):
        return None
    listing = {}
    for name, entry in value.items():
        # The record may have been edited: one bad name makes all of it worthless.
        if not isinstance(name, str) or not is_safe_relative_name(name):
            return None
        if not isinstance(entry, list) or len(entry) != 2:
            return None
        size, digest = entry
        if not isinstance(size, int) or not isinstance(digest, str):
            return None
        listing[name] = ListedFile(size, digest)
    return listing


def is_safe_relative_name(name: str) -> bool:
    """Is this the plain name of something below a folder, which can lead nowhere else?"""
    path = PurePosixPath(name)
    return (
        bool(name)
        and str(path) == name
        and not path.is_absolute()
        and ".." not in path.parts
        and "\0" not in name
    )


def refuse_unsafe_output_folder(
    output: DataPath, inputs: Iterable[Input], option: str = "-o"
) -> None:
    """Raise UsageError if an output folder is an input, holds one, or lies inside one, or lies
    inside a folder that truetune wrote.

    It must not lie inside a folder that truetune wrote either (`refuse_output_inside_own_folder`).

    Args:
        output: the folder, which need not be there yet.
        inputs: what the command reads: files and folders; what is not there is skipped.
        option: the one that names the folder.
    """
    for source in inputs:
        relation = _overlap_with_input_in_words(output, source.place)
        if relation is not None:
            raise UsageError(
                f"{output}: {relation} {source.place}, which this command reads ({source.what}); "
                f"nothing was written: name a folder of its own with {option}"
            )
    refuse_output_inside_own_folder(output)


def refuse_output_inside_own_folder(output: DataPath) -> None:
    """Raise UsageError if an output would lie inside encoded data or a checkpoint of truetune.

    The record of such a folder lists all that is in it. What is put there is a stranger to the next command that writes
    the folder, and goes with no command that removes it.

    Args:
        output: a file or a folder that is to be written, and need not be there. It may itself be such a folder.
    """
    # All folders above: an output may lie several folders below the record.
    for folder in _parent_folders(_local_path_of_file_uri(output)):
        for name, (what, is_record) in OWN_RECORDS.items():
            if is_record(_read_record_or_none(folder / name)):
                raise UsageError(
                    f"{output}: lies inside {folder}, {what}, whose {name} lists all that belongs "
                    "there; nothing was written: name a place outside of it"
                )


def refuse_overlapping_outputs(outputs: Iterable[Output]) -> None:
    """Raise UsageError where two outputs of one command are the same file or folder, or one lies inside the other.

    Terminals, pipes and /dev/null take any number of outputs.
    """
    for first, second in combinations(outputs, 2):
        relation = _overlap_of_outputs_in_words(
            _local_path_of_file_uri(second.place), _local_path_of_file_uri(first.place)
        )
        if relation is not None:
            raise UsageError(
                f"{second.option} {second.place}: {relation} {first.place}, which {first.option}"
                f" writes; nothing was written: name another one with {second.option}"
            )


def _overlap_of_outputs_in_words(one: DataPath, other: DataPath) -> str | None:
    """How an output overlaps another one, as a phrase; None if it does not. Neither needs to exist."""
    # A store has no inodes, and its names are the whole truth.
    if isinstance(one, RemotePath) or isinstance(other, RemotePath):
        return _overlap_by_remote_name_in_words(one, other, other_is_folder=True)
    try:
        taken = other.stat()
    except (OSError, ValueError):
        taken = None
    # Terminals, pipes and /dev/null.
    if taken is not None and not (stat.S_ISREG(taken.st_mode) or stat.S_ISDIR(taken.st_mode)):
        return None
    target, source = one.resolve(), other.resolve()
    if target == source or (taken is not None and _has_identity(target, taken)):
        return "is"
    if target in source.parents:
        return "holds"
    return "lies inside" if source in target.parents else None


def _parent_folders(output: DataPath) -> Iterator[DataPath]:
    """The folders that hold an output, the nearest first."""
    if not isinstance(output, RemotePath):
        yield from output.resolve().parents
        return
    while output.path:
        output = output.parent
        yield output


def _read_record_or_none(path: DataPath) -> Any:
    """The content of a record file; None if there is none that can be read. In a remote store, the
    folders around the output may be forbidden.
    """
    try:
        body = (
            path.read_bytes()
            if isinstance(path, RemotePath)
            else read_bytes_within_limit(path, RESULT)
        )
        return parse_json(body, RESULT)
    except (OSError, ValueError, DataError):
        return None


def _is_encoded_data_manifest(record: Any) -> bool:
    """Is this the manifest.json of encoded data?"""
    if not isinstance(record, dict) or not isinstance(record.get("key"), str):
        return False
    return isinstance(record.get("format"), int) and bool(parse_listing(record.get("files")))


def _is_checkpoint_record(record: Any) -> bool:
    """Is this the whole.json of a complete checkpoint?"""
    return (
        isinstance(record, dict)
        and record.get("format") == RECORD_FORMAT
        and bool(parse_listing(record.get("files")))
    )


OWN_RECORDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "manifest.json": ("data that truetune encoded", _is_encoded_data_manifest),
    WHOLE_FILE: ("a checkpoint of truetune", _is_checkpoint_record),
}
"""The records of folders into which nothing else is written: by name, what the folder is, and is it such a record"""


def _overlap_with_input_in_words(output: DataPath, input_path: DataPath) -> str | None:
    """How the output would overlap an input, as a phrase; None if it does not."""
    output, input_path = _local_path_of_file_uri(output), _local_path_of_file_uri(input_path)
    if isinstance(output, RemotePath) or isinstance(input_path, RemotePath):
        return _overlap_by_remote_name_in_words(output, input_path)
    try:
        status = input_path.stat()
    except (OSError, ValueError):
        # What is not there can't be written over; the command itself will say that it is missing.
        return None
    target, source = output.resolve(), input_path.resolve()
    if target == source or _has_identity(target, status):
        return "is"
    if target in source.parents or _is_parent_under_any_name(target, source):
        return "holds"
    return _overlap_under_other_name_in_words(target, status)


def _overlap_under_other_name_in_words(target: Path, status: os.stat_result) -> str | None:
    """How an output overlaps an input that has another name: a mounted folder around it, a hard
    link inside of it.
    """
    if stat.S_ISDIR(status.st_mode):
        is_inside = any(_has_identity(parent, status) for parent in target.parents)
        return "lies inside" if is_inside else None
    # A file of one name alone has no hard link that the output could hold: then nothing is searched.
    link = _find_hard_link(target, status) if status.st_nlink > 1 else None
    return None if link is None else f"holds {link.name}, a hard link to"


def _is_parent_under_any_name(target: Path, source: Path) -> bool:
    """Is `target` one of the folders around `source`? By identity: a mount has two names."""
    if not target.exists():
        return False
    own = target.stat()
    return any(_has_identity(parent, own) for parent in source.parents)


def _local_path_of_file_uri(place: DataPath) -> DataPath:
    """The local path that a file:// URI means; any other place as it is."""
    return (
        Path("/", place.path)
        if isinstance(place, RemotePath) and place.top.startswith("file://")
        else place
    )


def _has_identity(path: Path, known: os.stat_result) -> bool:
    """Is the file or folder at a path the one whose status is `known`?"""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    return (status.st_dev, status.st_ino) == (known.st_dev, known.st_ino)


def _find_hard_link(folder: Path, known: os.stat_result) -> Path | None:
    """The file below a folder that is the same file under another name."""
    for path, status in _walk_below(folder):
        if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) == (
            known.st_dev,
            known.st_ino,
        ):
            return path
    return None


def _overlap_by_remote_name_in_words(
    output: DataPath, source: DataPath, *, other_is_folder: bool | None = None
) -> str | None:
    """How two places overlap of which at least one is in a remote store: by their names alone.
    `other_is_folder`: whether `source` is a folder; the store is asked if it is None.
    """
    if (
        not isinstance(output, RemotePath)
        or not isinstance(source, RemotePath)
        or output.top != source.top
    ):
        return None
    if output.path == source.path:
        return "is"
    if source.path.startswith(f"{output.path}/") or not output.path:
        return "holds"
    if output.path.startswith(f"{source.path}/") and (other_is_folder or source.is_dir()):
        return "lies inside"
    return None


def find_foreign_files(
    folder: Path,
    listed: Listing,
    *,
    digest: Digest = file_digest,
    folders: Collection[str] = (),
    also_ours: Callable[[Path], bool] | None = None,
) -> Iterator[ForeignFile]:
    """The files in a folder that truetune's record does not account for, in the order of their
    names.

    Args:
        folder: need not be there.
        listed: the files that our record lists, by their path below the folder.
        digest: the one that the record was made with.
        folders: below it that are ours though nothing in them is listed; they are looked into all the same.
        also_ours: says of a path relative to the folder whether it is ours by another proof than the listing; a folder
            that it takes is not looked into.

    Raises OSError where the folder can't be read.
    """
    parents = {parent for name in listed for parent in PurePosixPath(name).parents}
    for path, status in _walk_below(folder, skip=also_ours):
        name = PurePosixPath(path.relative_to(folder).as_posix())
        why = None
        if stat.S_ISLNK(status.st_mode):
            why = "is a symbolic link, which truetune did not make"
        elif stat.S_ISDIR(status.st_mode):
            why = None if name in parents or str(name) in folders else "truetune did not write it"
        elif str(name) not in listed:
            why = "truetune did not write it"
        else:
            why = _difference_from_listing(path, status, listed[str(name)], digest)
        if why is not None:
            yield ForeignFile(path, why)


def _walk_below(
    folder: Path, skip: Callable[[Path], bool] | None = None
) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below a folder with its status, a folder before what is in it; links are not
    followed. Raises OSError.
    """
    # A stack and not recursion: a folder may be nested deeper than Python's own limit.
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            names = sorted(os.listdir(here))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in names:
            path = here / name
            if skip is not None and skip(path.relative_to(folder)):
                continue
            try:
                # A link is itself a stranger; following it would judge, or remove, what stands
                # elsewhere.
                status = path.lstat()
            except FileNotFoundError:
                continue
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                waiting.append(path)


def _difference_from_listing(
    path: Path, status: os.stat_result, listed: ListedFile, digest: Digest
) -> str | None:
    """How a file differs from what the record lists, as a phrase; None if it does not."""
    if not stat.S_ISREG(status.st_mode):
        return "is no ordinary file"
    if status.st_size != listed.size:
        return (
            f"is not as truetune wrote it: it has {status.st_size:,} bytes, {listed.size:,} were"
            " written"
        )
    try:
        # The size comes first: most files that changed are told without reading them.
        same = digest(path) == listed.digest
    except OSError as error:
        return f"can't be read: {error.strerror}"
    return None if same else "is not as truetune wrote it: its contents have changed"


def foreign_file_error(stranger: ForeignFile, instead: str = MOVE_ELSEWHERE) -> UsageError:
    """The error that names a file that truetune did not write, and says what to do."""
    return UsageError(f"{stranger.path}: {stranger.why}; {instead}")


def is_unchanged_listed_file(
    path: Path, listed: ListedFile | None, digest: Digest = file_digest
) -> bool:
    """Is this an ordinary file that is still as a record lists it?"""
    if listed is None:
        return False
    try:
        return _difference_from_listing(path, path.lstat(), listed, digest) is None
    except OSError:
        return False


def remove_unchanged_listed_files(
    folder: Path,
    listed: Listing,
    *,
    digest: Digest = file_digest,
    only: Collection[str] | None = None,
) -> list[str]:
    """Remove the listed files that are still as the record says, and the folders that are empty
    then.

    Args:
        folder: whose files they are; it goes too where nothing is left in it.
        listed: by their path below the folder.
        digest: the one that the listing was made with.
        only: some of the names; all where None.

    Returns the names of what was left because it is not as listed. Raises OSError.
    """
    left = []
    folders = {folder}
    for name in listed if only is None else only:
        path = folder / name
        above = [folder / parent for parent in PurePosixPath(name).parents]
        # Somebody replaced a folder by a link: what it leads to is not ours to remove.
        if any(parent.is_symlink() for parent in above if parent != folder):
            left.append(name)
        elif is_unchanged_listed_file(path, listed[name], digest):
            path.unlink()
            folders.update(above)
        elif os.path.lexists(path):
            left.append(name)
    remove_empty_folders(folders)
    return left


def remove_empty_folders(folders: Iterable[Path]) -> None:
    """Remove those of these folders that are empty, the deepest first. Raises OSError."""
    # The deepest first, so that a folder is empty once those in it are gone.
    for path in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()


def is_empty_lock_file(path: Path) -> bool:
    """Is this a lock file of truetune, which is empty? One with contents is somebody's, and a lock
    may empty it.
    """
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == 0
