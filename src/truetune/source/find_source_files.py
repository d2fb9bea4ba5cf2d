"""Finds the Python files, notebooks and files of commands in the paths that a user names.

What a user names is always read; in a folder, environments, caches and hidden folders are left out, because findings
in installed packages are not about the user's code. Symbolic links are resolved, so a file is judged once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from truetune.errors import UsageError
from truetune.parsing.shell_commands import is_command_file
from truetune.settings.suggest_spelling import did_you_mean_path

SKIPPED_FOLDERS = frozenset(
    (
        "node_modules",
        "__pycache__",
        "site-packages",
        "venv",
        "env",
        "build",
        "dist",
        "wandb",
        "unsloth_compiled_cache",
    )
)
"""Names of folders that hold no code of the project, whatever it is"""
SOURCE_SUFFIXES = (".py", ".ipynb")


def find_source_files(paths: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Each file that is named, and what lies in each folder, with the name it is under; in order, each once.

    Hidden folders, environments, caches and builds are left out. Raises UsageError for a path that is not there.
    """
    seen: set[Path] = set()
    for name in paths:
        path = Path(name)
        if not path.exists():
            raise UsageError(f"{name}: there is no such file or folder{did_you_mean_path(name)}")
        for file in _walk_source_files_in_folder(path) if path.is_dir() else [path]:
            resolved = file.resolve()
            if resolved not in seen:
                seen.add(resolved)
                yield name, file


def _walk_source_files_in_folder(folder: Path) -> Iterator[Path]:
    """The files of a folder and those below it that are read, in order of their names."""
    for root, folders, files in os.walk(folder):
        # Changed in place: `os.walk` continues with what is left of this list.
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED_FOLDERS
            and name[0] != "."
            and not Path(root, name, "pyvenv.cfg").exists()
        )
        yield from filter(_is_code_or_command_file, (Path(root, name) for name in sorted(files)))


def _is_code_or_command_file(file: Path) -> bool:
    """Is it code, or a file of commands? The results of lm_eval are told by their content."""
    return file.name[0] != "." and (file.name.endswith(SOURCE_SUFFIXES) or is_command_file(file))
