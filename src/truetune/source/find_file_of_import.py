"""Finds which of the files that are judged together an import means.

How it works: a name is searched as Python would with the script's folder, the folders around it and their `src` on the
path, so a project needs no installation and nothing is run. What is not among the files is left open.

The trade-off: libraries and the standard library are not searched among the files, but for `evaluate.py` right beside a
script. A folder named `datasets` beside a script is taken for the data, not for the code, since it is one in
nearly all projects.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from truetune.source.shorten_qualified_names import LIBRARIES_WITH_SHORT_NAMES

NEVER_IN_A_PROJECT = (
    frozenset(LIBRARIES_WITH_SHORT_NAMES)
    | sys.stdlib_module_names
    | {
        "torch",
        "numpy",
        "pandas",
        "tokenizers",
        "evaluate",
        "lightning",
        "pytorch_lightning",
        "torchtune",
        "deepspeed",
        "vllm",
        "sentence_transformers",
        "diffusers",
        "wandb",
        "tqdm",
    }
)
"""Top-level modules that are no part of a project, even if one of its files or folders has that name"""
NAMES_OF_SCRIPTS = frozenset(("evaluate",))
"""Those of them that scripts are called too: beside a script that takes a name from it, the file is meant"""
SOURCES_FOLDER = "src"
"""The folder of the packages in the usual layout of a project"""


class FoundFile(NamedTuple):
    """The file that the first parts of a dotted name mean."""

    path: str
    used: int
    """Parts of the name that are the file; the others are names in it"""


class ImportSearch:
    """The files that are judged together, by the names that they are imported by."""

    def __init__(self, files: Iterable[str], named: Iterable[str]) -> None:
        """`files`: all of them; `named`: the files and folders that the user named."""
        self._paths = {os.path.abspath(file): file for file in files if file.endswith(".py")}
        self._top = _common_folder_of_files(list(map(os.path.abspath, named)))
        self._found: dict[tuple[str, int, tuple[str, ...]], FoundFile | None] = {}

    @cached_property
    def _file_folders_and_their_ancestors(self) -> frozenset[str]:
        """The folders that hold files, and those around them."""
        folders: set[str] = set()
        for path in self._paths:
            folder = os.path.dirname(path)
            while folder not in folders:
                folders.add(folder)
                folder = os.path.dirname(folder)
        return frozenset(folders)

    @cached_property
    def _importable_top_level_names(self) -> frozenset[str]:
        """The first names that an absolute import of one of the files may have."""
        names = {os.path.basename(path).removesuffix(".py") for path in self._paths}
        return frozenset(
            names | {os.path.basename(folder) for folder in self._file_folders_and_their_ancestors}
        )

    def find(self, importer: str, level: int, parts: tuple[str, ...]) -> FoundFile | None:
        """Find the file that a dotted name means.

        Args:
            importer: The file that holds the import.
            level: Dots before the name: 1 is the importer's own folder; 0 is an absolute import.
            parts: The name, with the attributes that follow it. The longest part of it that is a file counts.

        Returns:
            None where it is none of the files.
        """
        # Most imports are of libraries: a set answers these without a search.
        if not level and (not parts or parts[0] not in self._importable_top_level_names):
            return None
        folder = os.path.dirname(os.path.abspath(importer))
        if not level and parts[0] in NEVER_IN_A_PROJECT:
            return self._find_file_named_like_library(folder, parts)
        key = (folder, level, parts)
        if key not in self._found:
            self._found[key] = (
                self._find_relative_import(folder, level, parts)
                if level
                else self._find_absolute_import(folder, parts)
            )
        return self._found[key]

    def _find_file_named_like_library(
        self, folder: str, parts: tuple[str, ...]
    ) -> FoundFile | None:
        """The file with a library's name from which a script takes a name: `from evaluate import perplexity`.

        Python searches the folder of a script first. A file of a package is imported from elsewhere, where the library
        is meant, and so is a module that is imported as a whole.
        """
        in_package = os.path.join(folder, "__init__.py") in self._paths
        path = os.path.join(folder, f"{parts[0]}.py")
        is_file = path in self._paths and parts[0] in NAMES_OF_SCRIPTS
        if in_package or len(parts) != 2 or not is_file:
            return None
        return FoundFile(self._paths[path], 1)

    def _find_relative_import(
        self, folder: str, level: int, parts: tuple[str, ...]
    ) -> FoundFile | None:
        """The file of `from ..parts import x`, from the importer's folder on."""
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        return self._find_longest_match_below_folder(folder, parts, least=0)

    def _find_absolute_import(self, folder: str, parts: tuple[str, ...]) -> FoundFile | None:
        """The file of `import parts`: in the importer's folder and its `src`, then in those around it."""
        while True:
            for base in (folder, os.path.join(folder, SOURCES_FOLDER)):
                file = self._find_longest_match_below_folder(base, parts, least=1)
                if file is not None:
                    return file
            # Above what the user named, only the folders of a package are searched: its absolute imports begin at the
            # folder around the package, and any other file up there is none of this project.
            outer = os.path.dirname(folder)
            in_package = os.path.join(folder, "__init__.py") in self._paths
            if outer == folder or (folder == self._top and not in_package):
                return None
            if not in_package and not folder.startswith(self._top):
                return None
            folder = outer

    def _find_longest_match_below_folder(
        self, base: str, parts: tuple[str, ...], *, least: int
    ) -> FoundFile | None:
        """The file below a folder that the longest part of a dotted name means, of at least `least`
        parts.
        """
        for used in range(len(parts), least - 1, -1):
            stem = os.path.join(base, *parts[:used])
            names = (
                (stem + ".py", os.path.join(stem, "__init__.py"))
                if used
                else (os.path.join(stem, "__init__.py"),)
            )
            for name in names:
                if name in self._paths:
                    return FoundFile(self._paths[name], used)
        return None


def _common_folder_of_files(named: list[str]) -> str:
    """The folder around all files; above it only packages are searched."""
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in named]
    try:
        return os.path.commonpath(folders)
    except ValueError:  # none is named, or they lie on several drives
        return os.path.abspath(os.sep)
