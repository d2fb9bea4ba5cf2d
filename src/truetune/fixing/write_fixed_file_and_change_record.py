"""Writes the files of `truetune fix`: the fixed file, and beside it a record of each change.

The record begins with a line that says what was fixed and how, and ends with one that lists the fixed file's size and
digest: by it a later run knows the file as its own (`data.guard_output_file`).
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from truetune.data.find_data_files import COMPRESSION_SUFFIXES, KIND_BY_SUFFIX
from truetune.data.guard_output_file import FileForm, make_prefix_test, refuse_unsafe_output_file
from truetune.data.guard_output_folder import ListedFile, file_digest, is_unchanged_listed_file
from truetune.data.write_atomically import PartialFile
from truetune.errors import UsageError
from truetune.fixing.apply_proved_remedies import MadeChange
from truetune.fixing.row_edits import format_path
from truetune.package import __version__
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json

SCHEMA = "truetune.changes/1"
# Chosen, not measured: the last line has a name, a size and a digest, some hundred bytes.
TAIL_BYTES = 65_536
"""Bytes at the end of a record that hold its last line"""


def change_record_path(output: Path) -> Path:
    """Where the record of the changes of a fixed file is."""
    return output.with_name(f"{output.name}.changes.jsonl")


CHANGES_FORM = FileForm(
    "a record of changes that truetune wrote", make_prefix_test(f'{{"schema": "{SCHEMA}"'.encode())
)


def _is_own_fixed_file(path: Path) -> bool:
    """Is it as a run of `truetune fix` wrote it, by the record beside it?"""
    # The record beside the file is the proof that it is ours; a file without one is somebody's.
    record = change_record_path(path)
    if not record.is_file() or not CHANGES_FORM.is_ours(record):
        return False
    with record.open("rb") as file:
        file.seek(max(0, record.stat().st_size - TAIL_BYTES))
        # Written last: a record of a run that was killed has no such line.
        last = parse_json(file.read().splitlines()[-1], ROW)
    return is_unchanged_listed_file(path.resolve(), ListedFile(last["size"], last["digest"]))


FIXED_FORM = FileForm("a file that truetune fixed, unchanged since", _is_own_fixed_file)


def check_output_may_be_written(output: Path, inputs: Iterable[Path]) -> None:
    """Raise UsageError where the fixed file or its record can't be written, or would replace something foreign."""
    sources = list(inputs)
    # A pipe can't be replaced, and its name has no folder in which a record would be looked for.
    if output.exists() and not output.is_file() and not output.is_dir():
        raise UsageError(
            f"{output}: name an ordinary file: its changes are recorded in another one beside it"
        )
    refuse_unsafe_output_file(output, FIXED_FORM, sources)
    # The record is an output like any other: somebody may have a file of that name.
    refuse_unsafe_output_file(change_record_path(output), CHANGES_FORM, sources)


def check_same_format_and_compression(data: Path, output: Path) -> None:
    """Raise UsageError where the name of the output promises another format, or another compression."""
    if _format_and_compression(data) != _format_and_compression(output):
        wanted = "".join(_format_and_compression(data)) or "no suffix"
        raise UsageError(
            f"{output}: the fixed file has the format of {data.name} ({wanted}); name it so"
        )


def _format_and_compression(path: Path) -> tuple[str, str]:
    """(format, compression) by the suffixes of a name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSION_SUFFIXES else ""
    kind = suffixes[-1] if suffixes and suffixes[-1] in KIND_BY_SUFFIX else ""
    return kind, packed


def open_compressed_output(file: IO[bytes], suffix: str) -> IO[bytes]:
    """A stream that compresses what is written into a file, as its suffix says; the same bytes give
    the same file.
    """
    stream: Any = file
    match suffix.lower():
        case ".gz":
            # No name and no time in the header: the same rows give the same bytes.
            stream = gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        case ".bz2":
            stream = bz2.BZ2File(file, "wb")
        case ".xz":
            stream = lzma.LZMAFile(file, "wb")  # noqa: SIM115
        case ".zst":
            import zstandard

            stream = zstandard.ZstdCompressor().stream_writer(file, closefd=False)
    return stream  # type: ignore[no-any-return]


class ChangeLog:
    """The record of changes, written while they are made."""

    def __init__(self, part: PartialFile, about: Mapping[str, Any]) -> None:
        self._part = part
        self._write_line({"schema": SCHEMA, "truetune": __version__, **about})

    def add(self, change: MadeChange) -> None:
        """Record one edit of one row."""
        self._write_line(
            {
                "row": change.origin.row,
                "line": change.origin.line,
                "rule": change.rule,
                "change": change.what,
                "path": format_path(change.path),
                "before": change.before,
                "after": change.after,
            }
        )

    def end(self, fixed: PartialFile) -> None:
        """Write the last line of the record, which lists the size and digest of the fixed file.
        Raises OSError.
        """
        place = fixed.temporary_path()
        self._write_line(
            {"fixed": fixed.path.name, "size": place.stat().st_size, "digest": file_digest(place)}
        )

    def _write_line(self, line: Mapping[str, Any]) -> None:
        """One line of the record."""
        # ASCII: half surrogates of a row can be written as escapes alone.
        self._part.file.write(json.dumps(line, default=str).encode("ascii") + b"\n")
