"""RemotePath: a file or folder in a remote store that a URI names, with the part of pathlib.Path
that truetune uses.

Arrow's filesystems reach it: s3://bucket/..., gs://..., abfs://..., hdfs://host:port/..., file:///... What Arrow takes
after a question mark (`s3://bucket/x?region=eu-west-1`) says how it is reached, and is no part of its name; nor are a
user and a secret before the host.
"""

from __future__ import annotations

import errno
import glob
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from truetune.errors import DataError

# Chosen, not measured: an object store takes tens of milliseconds for a request, however small; a
# few MB in flight cost little memory.
BUFFER_BYTES = 1 << 20
"""Bytes that a small read fetches at once; a larger read fetches what it asks for."""
# What such an address serves may change from one read to the next, so that a run could not be repeated.
REFUSED_SCHEMES = ("hf", "http", "https", "ftp")
_URI = re.compile(r"([a-z][a-z0-9+.-]*://[^/?]*)/?(.*?)(\?[\w.-]+=.*)?", re.DOTALL)


class FileSize(NamedTuple):
    """The size of a file, as `os.stat_result` has it."""

    st_size: int


class RemotePath:
    """A place under the top of a filesystem; equal where both are equal."""

    def __init__(self, top: str, path: str, info: Any = None) -> None:
        """`top` is a URI as Arrow takes it, `info` the pyarrow.fs.FileInfo of the place where it is known."""
        self.top = top
        self.path = path.strip("/")
        if info is not None:
            # The place of a cached property: a listing has told it already, and each question to a
            # store costs a request.
            self.__dict__["_file_info_from_store"] = info

    @classmethod
    def from_uri(cls, uri: str) -> RemotePath:
        """The place that a URI names. Raises DataError if Arrow has no filesystem for it."""
        match = _URI.fullmatch(uri)
        if match is None:
            raise DataError(f"{uri}: expected a URI, as s3://bucket/folder/file.jsonl")
        if uri.partition(":")[0] in REFUSED_SCHEMES:
            raise DataError(f"{uri}: for a data set of the hub or the web, download it first")
        remote = cls(f"{match[1]}/{match[3] or ''}", match[2])
        _open_filesystem(remote.top)
        return remote

    def __str__(self) -> str:
        # Without user and secret: this is what messages and records show.
        scheme, _, host = self.top.partition("?")[0].partition("://")
        return f"{scheme}://{host.rpartition('@')[2]}{self.path}"

    def __repr__(self) -> str:
        return f"Remote({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # For worker processes: a filesystem of Arrow is opened again there, a connection can't
        # travel.
        return RemotePath, (self.top, self.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and (self.top, self.path) == (other.top, other.path)

    def __hash__(self) -> int:
        return hash((self.top, self.path))

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.top, f"{self.path}/{name}")

    @property
    def parent(self) -> RemotePath:
        """The folder around it."""
        return RemotePath(self.top, self.path.rpartition("/")[0])

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The last suffix of its name, with the dot."""
        return PurePosixPath(self.name).suffix

    @property
    def suffixes(self) -> list[str]:
        """All suffixes of its name."""
        return PurePosixPath(self.name).suffixes

    def is_file(self) -> bool:
        """Is there a file of this name? Asked of the store once."""
        return bool(self._file_info_from_store.is_file)

    def is_dir(self) -> bool:
        """Is there a folder of this name? In an object store: are there names that begin with it?"""
        from pyarrow.fs import FileType

        return bool(self._file_info_from_store.type == FileType.Directory)

    def stat(self) -> FileSize:
        """The size of the file, as it was when it was first asked for. Raises FileNotFoundError."""
        if not self.is_file():
            raise self.missing_file_error()
        return FileSize(self._file_info_from_store.size)

    def iterdir(self) -> Iterator[RemotePath]:
        """The entries of a folder; none if it does not exist."""
        return self._list_folder(recursive=False)

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """The entries below the folder, at any depth, whose name fits a pattern."""
        return (
            place for place in self._list_folder(recursive=True) if fnmatchcase(place.name, pattern)
        )

    def expand_glob(self) -> Iterator[RemotePath]:
        """The places that fit this one as a pattern; `**` stands for any folders."""
        # Level by level, so that only folders that fit are listed: a bucket may hold millions of
        # names.
        yield from _matching_places(RemotePath(self.top, ""), self.path.split("/"))

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open the file for reading bytes; only those that are read are fetched. Raises OSError,
        DataError.
        """
        with self._errors_that_name_path():
            return io.BufferedReader(
                self._filesystem.open_input_file(self._filesystem_path), BUFFER_BYTES
            )

    def read_bytes(self) -> bytes:
        """The whole content. Raises OSError, DataError."""
        with (
            self._errors_that_name_path(),
            self._filesystem.open_input_file(self._filesystem_path) as file,
        ):
            body: bytes = file.read()
        return body

    def read_text(self, encoding: str = "utf-8") -> str:
        """The whole text. Raises OSError, DataError, UnicodeDecodeError."""
        return self.read_bytes().decode(encoding)

    def write(self, body: Any) -> None:
        """Write the file whole; an object store shows it only then. Raises DataError."""
        with self._errors_that_name_path():
            try:
                stream = self._filesystem.open_output_stream(
                    self._filesystem_path, compression=None
                )
            except FileNotFoundError:
                self._filesystem.create_dir(self.parent._filesystem_path, recursive=True)
                stream = self._filesystem.open_output_stream(
                    self._filesystem_path, compression=None
                )
            with stream:
                stream.write(body)

    def remove(self) -> None:
        """Remove a file, or a folder with all it holds; nothing happens where there is none. Raises DataError."""
        with self._errors_that_name_path():
            try:
                if self.is_dir():
                    self._filesystem.delete_dir(self._filesystem_path)
                else:
                    self._filesystem.delete_file(self._filesystem_path)
            except FileNotFoundError:
                return

    @property
    def _filesystem(self) -> Any:
        """Arrow's filesystem, opened once a process."""
        return _open_filesystem(self.top)[0]

    @property
    def _filesystem_path(self) -> str:
        """The path as the filesystem takes it."""
        base: str = _open_filesystem(self.top)[1]
        # Arrow's path begins with the bucket; for HDFS and files there is none.
        return f"{base.rstrip('/')}/{self.path}" if base else self.path

    @cached_property
    def _file_info_from_store(self) -> Any:
        """What the store says of this place (kind, size); asked once."""
        with self._errors_that_name_path():
            return self._filesystem.get_file_info(self._filesystem_path)

    def _list_folder(self, recursive: bool) -> Iterator[RemotePath]:
        """The entries of the folder, each with its file info; also those further below if
        `recursive`.
        """
        from pyarrow.fs import FileSelector

        # Names come back as the filesystem has them, with the bucket before.
        skip = len(self._filesystem_path) - len(self.path)
        with self._errors_that_name_path():
            selector = FileSelector(
                self._filesystem_path, allow_not_found=True, recursive=recursive
            )
            entries = self._filesystem.get_file_info(selector)
        return (RemotePath(self.top, info.path[skip:], info) for info in entries)

    def missing_file_error(self) -> FileNotFoundError:
        """The error to raise if there is no such file."""
        return FileNotFoundError(errno.ENOENT, "No such file or directory", str(self))

    @contextmanager
    def _errors_that_name_path(self) -> Iterator[None]:
        """Raise Arrow's errors again with the path in them; Arrow names buckets and keys, or
        nothing at all.
        """
        try:
            yield
        except FileNotFoundError:
            raise self.missing_file_error() from None
        except (OSError, ValueError, NotImplementedError) as error:
            raise DataError(f"{self}: {error}") from None


DataPath = Path | RemotePath


def parse_data_path(name: str | PathLike[str] | RemotePath) -> DataPath:
    """The local path or RemotePath that a name or URI means. Raises DataError for a URI that Arrow
    has no filesystem for.
    """
    if isinstance(name, RemotePath):
        return name
    return (
        RemotePath.from_uri(name)
        if isinstance(name, str) and "://" in name
        else Path(name).expanduser()
    )


# Opening S3 resolves a region over the network; a run has a few tops, not thousands.
@lru_cache(maxsize=64)
def _open_filesystem(top: str) -> tuple[Any, str]:
    """Arrow's filesystem for the top of a URI, and the path of that top in it."""
    from pyarrow.fs import FileSystem

    try:
        filesystem, base = FileSystem.from_uri(top)
    except (OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{RemotePath(top, '')}: {str(error).splitlines()[0]}") from None
    return filesystem, base


def _matching_places(folder: RemotePath, pattern: list[str]) -> Iterator[RemotePath]:
    """The places below a folder that fit the parts of a pattern."""
    part, *rest = pattern
    # `**` stands for no folder as well.
    if part == "**":
        if rest:
            yield from _matching_places(folder, rest)
        for place in folder.iterdir():
            if place.is_dir():
                yield from _matching_places(place, pattern)
            elif not rest:
                yield place
    elif not glob.has_magic(part):
        yield from _matching_places(folder / part, rest) if rest else [folder / part]
    else:
        for place in folder.iterdir():
            if fnmatchcase(place.name, part):
                yield from _matching_places(place, rest) if rest else [place]
