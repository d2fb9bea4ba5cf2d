"""Finds the files of a project that a script imports, and reads their texts.

How it works: the lines that import are read as text, file by file, and each name is looked for as a file or a folder
where Python or a project would have it. Of a package that is imported all files are taken, since its parts import each
other in ways that only a parser tells.

The trade-off: the folders around the script count only up to the folder that the command runs in, so that a script in
a home folder brings no other project along.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from truetune.errors import TruetuneError
from truetune.source.find_file_of_import import NEVER_IN_A_PROJECT, SOURCES_FOLDER
from truetune.source.find_source_files import find_source_files
from truetune.source.group_files_by_imports import IMPORT_LINE
from truetune.source.parsed_source_file import decode_source_file_with_codec

MAX_FILES = 200
"""Files that are looked at for one script"""


def texts_of_script_and_possible_imports(script: Path) -> dict[str, str]:
    """The texts of a script, of all Python files beside it and of the files that they may import, by path; the script's
    own comes first.

    Args:
        script: A Python file or notebook.

    Raises:
        DataError: the script itself can't be read.
    """
    texts = {str(script): decode_source_file_with_codec(script)[0]}
    folders = _import_search_folders(script)
    waiting = [*sorted(script.parent.glob("*.py"))]
    searched: set[str] = set()
    for name in _imported_top_names(texts[str(script)], searched):
        waiting += _files_of_module_or_package(name, folders)
    while waiting and len(texts) < MAX_FILES:
        path = waiting.pop(0)
        if str(path) in texts:
            continue
        try:
            texts[str(path)] = decode_source_file_with_codec(path)[0]
        except (TruetuneError, OSError):
            continue
        for name in _imported_top_names(texts[str(path)], searched):
            waiting += _files_of_module_or_package(name, folders)
    return texts


def _import_search_folders(script: Path) -> list[Path]:
    """The folders that imports are looked for in: that of the script, and those around it up to the current one."""
    folders = [script.parent]
    current = Path.cwd().resolve()
    place = script.parent.resolve()
    # Named as the script is, for paths are compared as texts.
    while place != current and place.is_relative_to(current):
        place = place.parent
        folders.append(_parent_folder(folders[-1]))
    return [one for folder in folders for one in (folder, folder / SOURCES_FOLDER)]


def _parent_folder(folder: Path) -> Path:
    """The folder around a folder, relative as it is."""
    return folder.parent if folder.name not in ("", "..") else folder / ".."


def _imported_top_names(text: str, searched: set[str]) -> Iterator[str]:
    """The first parts of the names that a text imports, each once; relative ones are in the package
    already.
    """
    for match in IMPORT_LINE.finditer(text):
        dots, origin, _, plain = match.groups()
        if dots:
            continue
        for name in [origin] if origin else (plain or "").split(","):
            first = name.strip().partition(" ")[0].partition(".")[0]
            if first and first not in searched and first not in NEVER_IN_A_PROJECT:
                searched.add(first)
                yield first


def _files_of_module_or_package(name: str, folders: list[Path]) -> list[Path]:
    """The file of a module, or the files of a package, in the first folder that has it."""
    for folder in folders:
        module, package = folder / f"{name}.py", folder / name
        if package.is_dir():
            files = (path for _, path in find_source_files([str(package)]))
            return [path for path in islice(files, MAX_FILES) if path.suffix == ".py"]
        if module.is_file():
            return [module]
    return []
