"""Reads the texts of a user's project (scripts, settings, jobs, logs) and the words in them.

A cause of a symptom speaks of what it takes: a card of Volta, DeepSpeed, a Modelfile, padded batches. A project that
has none of these words hardly has that cause. Only files that people write or programs print are read; rows are
left out, for their words are those of any subject. The trade-off: a word proves nothing, so that these words order
causes and never find or exclude one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from truetune.checks.explaining.stem_words import list_stems
from truetune.errors import DataError
from truetune.source.find_source_files import SKIPPED_FOLDERS
from truetune.source.notebook_code_cells import read_code_cells

TEXT_SUFFIXES = frozenset(
    (
        ".py",
        ".ipynb",
        ".yaml",
        ".yml",
        ".toml",
        ".cfg",
        ".ini",
        ".sh",
        ".bash",
        ".slurm",
        ".sbatch",
        ".sub",
        ".log",
        ".out",
        ".err",
        ".txt",
        ".md",
        ".json",
        ".env",
    )
)
"""Endings of files that hold code, settings, commands or output; JSON Lines, CSV and Parquet hold rows"""
TEXT_NAMES = frozenset(("Dockerfile", "Modelfile", "Makefile", "nohup.out", "hostfile"))
# Chosen, not measured: a project of more is a checkout of a library, whose words are those of every subject.
MAX_FILES = 200
MAX_LINES = 6_000
"""Of each file, read for its settings: a longer one is output, whose settings stand at its beginning"""
PROSE_SUFFIXES = frozenset((".md",))
MAX_DEPTH = 3
"""Folders below the one that was named"""
MAX_BYTES_PER_FILE = 300_000
"""Of each file, the beginning and the end: a log ends with what went wrong"""
MAX_BYTES = 6_000_000
"""Of all files: about a second of reading and stemming"""


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line of a project's file, with its place."""

    place: str
    """`train.py:41`, or `tune.ipynb:cell 3, line 2`"""
    text: str
    file: str


@dataclass(frozen=True, slots=True)
class ProjectText:
    """One file of a project that holds code, settings, commands or output."""

    path: Path
    text: str = field(repr=False)
    is_whole: bool
    """Not only its beginning and its end: lines can be counted"""

    def lines_unless_prose(self) -> Iterator[TextLine]:
        """The lines of the file, a notebook's as those of its cells; none of prose, which says what is not there too.

        A file that was read in two pieces has its lines up to the gap.
        """
        if self.path.suffix.lower() in PROSE_SUFFIXES:
            return
        if self.path.suffix == ".ipynb":
            yield from self._lines_of_cells()
            return
        text = self.text if self.is_whole else self.text[: MAX_BYTES_PER_FILE // 2]
        for number, line in enumerate(text.splitlines()[:MAX_LINES], 1):
            yield TextLine(f"{self.path}:{number}", line, str(self.path))

    def _lines_of_cells(self) -> Iterator[TextLine]:
        """The lines of a notebook's cells."""
        try:
            cells = read_code_cells(self.text, str(self.path)) if self.is_whole else ()
        except DataError:
            return
        for cell in cells:
            for number, line in enumerate(cell.text.splitlines(), 1):
                place = f"{self.path}:cell {cell.number}, line {number}"
                yield TextLine(place, line, str(self.path))


def read_project_texts(paths: Iterable[str | os.PathLike[str]]) -> tuple[ProjectText, ...]:
    """The texts among files and folders; what can't be read is left out."""
    texts: list[ProjectText] = []
    left = MAX_BYTES
    for path in _find_text_files_up_to_limit(paths):
        text = _read_beginning_and_end(path)
        left -= len(text)
        texts.append(ProjectText(path, text, len(text) < MAX_BYTES_PER_FILE // 2))
        if left <= 0:
            break
    return tuple(texts)


def word_stems_of_texts(texts: Iterable[ProjectText]) -> frozenset[str]:
    """The stems of all words in texts."""
    return frozenset(stem for text in texts for stem in list_stems(text.text))


def read_word_stems_of_project(paths: Iterable[str | os.PathLike[str]]) -> frozenset[str]:
    """The stems of all words in the texts among files and folders; what can't be read has none."""
    return word_stems_of_texts(read_project_texts(paths))


def _find_text_files_up_to_limit(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    """The files of texts among paths, those of folders in the order of their names; at most
    MAX_FILES.
    """
    count = 0
    for path in map(Path, paths):
        # A file that was named is read whatever it is called, unless it holds rows.
        files = _user_files_below_folder(path) if path.is_dir() else iter([path])
        for file in files:
            if not _has_text_suffix(file):
                continue
            yield file
            count += 1
            if count == MAX_FILES:
                return


def _user_files_below_folder(folder: Path) -> Iterator[Path]:
    """The files in a folder and a few levels below; hidden folders, environments and caches are
    left out.
    """
    depth_of_folder = len(folder.parts)
    for parent, folders, names in os.walk(folder):
        is_deep = len(Path(parent).parts) - depth_of_folder >= MAX_DEPTH
        folders[:] = [] if is_deep else sorted(filter(_may_folder_hold_users_files, folders))
        yield from (Path(parent, name) for name in sorted(names))


def _may_folder_hold_users_files(name: str) -> bool:
    """May a folder of that name hold what the user wrote?"""
    return not name.startswith(".") and name not in SKIPPED_FOLDERS


def _has_text_suffix(path: Path) -> bool:
    """Does a file hold code, settings, commands or output, by its name?"""
    if not path.is_file():
        return False
    # A tokenizer's vocabulary has every word.
    if path.name in ("tokenizer.json", "vocab.json", "merges.txt"):
        return False
    return path.suffix.lower() in TEXT_SUFFIXES or path.name in TEXT_NAMES or not path.suffix


def _read_beginning_and_end(path: Path) -> str:
    """The beginning and the end of a file; empty where it can't be read or is no text."""
    try:
        with path.open("rb") as file:
            head = file.read(MAX_BYTES_PER_FILE // 2)
            size = file.seek(0, os.SEEK_END)
            # What was read already is not read again: lines are counted.
            file.seek(max(len(head), size - MAX_BYTES_PER_FILE // 2))
            tail = file.read()
    except OSError:
        return ""
    if b"\0" in head:
        return ""
    gap = b"\n" if tail else b""
    return (head + gap + tail).decode("utf-8", errors="replace")
