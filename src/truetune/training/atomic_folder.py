"""Writes a folder whole or not at all, and copies the small files that go with weights.

All is written into a work folder beside the target, which takes its name at the end. That needs the room twice where a
folder is replaced, which is why existing folders are refused rather than replaced.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from truetune.data import write_atomically
from truetune.data.guard_output_folder import (
    Input,
    refuse_unsafe_output_folder,
    remove_empty_folders,
)
from truetune.errors import UsageError
from truetune.render.find_tokenizer_folder import TOKENIZER_FILES

TOKENIZER_EXTRAS = (
    "tokenizer.model.v*",
    "tekken.json",
    "*.tiktoken",
    "preprocessor_config.json",
    "processor_config.json",
)
"""What a tokenizer or processor is made of, besides `TOKENIZER_FILES`"""
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Chosen, not measured: tokenizer, templates and records of known models stay below 40 MB.
SPARE_BYTES = 64 << 20
"""Bytes for what stands beside the weights"""
MARK_FORMAT = 1
"""Raise it where the mark changes: a work folder with another mark is not taken for ours, and
stays"""
MARK_FILE, MODEL_FOLDER = "truetune-work.json", "model"
"""In a work folder: the file that marks it as ours, and what will get the name of the output"""
# Removal goes by this list and never by the folder: a file that somebody put there meanwhile has no
# such name, and stays.
WRITTEN_NAMES = re.compile(
    r"(adapter_)?model(-\d+-of-\d+)?\.safetensors(\.index\.json)?|.+\.gguf|tokenizer.*|.*\.tiktoken|.*\.jinja|README\.md"
    r"|(config|generation_config|merge|special_tokens_map|added_tokens|chat_template|vocab|tekken|preprocessor_config"
    r"|processor_config|adapter_config)\.json|(vocab|merges)\.txt|spiece\.model|.+\.py"
)
"""Names of files that a merge or an export writes"""


def require_empty_folder_apart_from_inputs(folder: Path, inputs: Sequence[Input]) -> None:
    """Raise UsageError where a folder is an input, holds one or lies in one, or has anything in it already."""
    refuse_unsafe_output_folder(folder, inputs)
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"{folder}: already exists, and is no folder; name another folder with -o")
    first = min((path.name for path in folder.iterdir()), default=None) if folder.is_dir() else None
    if first is not None:
        raise UsageError(
            f"{folder}: already exists, and holds {first}; nothing was written: name another folder"
            " with -o, or remove this one"
        )


@contextmanager
def write_folder_atomically(folder: Path, *, size: int, inputs: Sequence[Input]) -> Iterator[Path]:
    """A new folder beside `folder`, which takes its name at the end; after an error nothing is left of it.

    What is written stands in `model` of a work folder, beside a file that marks this as ours. What a killed process has
    left is removed where it bears that mark, as far as its files have names that are written here.

    Args:
        folder: need not be there; an empty one is taken.
        size: bytes that will be written.
        inputs: what is read; `folder` must be none of it, hold none of it and lie in none of it.

    Raises UsageError where something is in the folder already, or there is no room.
    """
    require_empty_folder_apart_from_inputs(folder, inputs)
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # What a killed process has left takes as much room as a model. The number of the process is in
    # the name, so that a merge that still runs is not touched.
    for left in folder.parent.glob(f".{folder.name}.*.part"):
        if _process_id_in_work_folder_mark(left) is not None and not _is_process_alive(
            _process_id_in_work_folder_mark(left) or ""
        ):
            _remove_work_folder(left)
    # Before anything is written: a full disk harms other programs too.
    free = shutil.disk_usage(folder.parent).free
    if free < size + SPARE_BYTES:
        raise UsageError(
            f"{folder}: needs {size + SPARE_BYTES:,} bytes, and {free:,} are free; nothing was written"
        )
    # Beside the target and not in /tmp: a rename is atomic on one file system only.
    work = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    part = work / MODEL_FOLDER
    try:
        work.mkdir()
        write_atomically.write_atomically(
            work / MARK_FILE, _work_folder_mark_file_content(str(os.getpid()))
        )
        part.mkdir()
        yield part
        for path in sorted(part.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    # A rename may reach the disk before the data does; after a power cut the folder
                    # would then be there with empty files.
                    os.fsync(file.fileno())
        write_atomically.sync_folder_to_disk(part)
        part.replace(folder)
        write_atomically.sync_folder_to_disk(folder.parent)
    # mkdir of the work folder: another process has the same number in another container, or the
    # user has made it.
    except FileExistsError:
        raise UsageError(
            f"{work}: already exists, and truetune did not write it; move it elsewhere"
        ) from None
    except Exception as error:
        if _is_disk_full(error):
            raise UsageError(
                f"{folder}: the disk is full; nothing of it was left there: make room, or name"
                " another folder with -o"
            ) from error
        raise
    finally:
        _remove_work_folder(work)


def _work_folder_mark_file_content(process: str) -> bytes:
    """The content of the file that marks a work folder as ours, for the number of a process."""
    return json.dumps(
        {"truetune": "a model that is being written", "format": MARK_FORMAT, "process": process}
    ).encode()


def _process_id_in_work_folder_mark(work: Path) -> str | None:
    """The number of the process that a work folder of ours names; None where it does not bear our
    mark.
    """
    process = work.name.split(".")[-2]
    try:
        ours = not work.is_symlink() and (
            work / MARK_FILE
        ).read_bytes() == _work_folder_mark_file_content(process)
    except OSError:
        return None
    return process if ours else None


def _remove_work_folder(work: Path) -> None:
    """Remove a work folder that bears our mark. A file that has no name of ours stays, and so does the folder then."""
    if _process_id_in_work_folder_mark(work) is None:
        return
    folders = {work / MODEL_FOLDER}
    for path in (work / MODEL_FOLDER).rglob("*"):
        # A link is never followed: what lies behind it is not ours.
        if path.is_dir() and not path.is_symlink():
            folders.add(path)
        elif path.is_file() and not path.is_symlink() and WRITTEN_NAMES.fullmatch(path.name):
            path.unlink()
    remove_empty_folders(folders)
    if {path.name for path in work.iterdir()} == {MARK_FILE}:
        (work / MARK_FILE).unlink()
        work.rmdir()


def copy_tokenizer_files(source: Path, to: Path) -> list[str]:
    """Copy the files of a tokenizer with its templates, as they are, and give their names."""
    named = [source / name for name in TOKENIZER_FILES]
    extras = [path for glob in TOKENIZER_EXTRAS for path in sorted(source.glob(glob))]
    copied = [path for path in (*named, *extras) if path.is_file()]
    for path in copied:
        shutil.copyfile(path, to / path.name)
    templates = source / "additional_chat_templates"
    if templates.is_dir():
        shutil.copytree(templates, to / templates.name, dirs_exist_ok=True)
    return [path.name for path in copied]


def _is_process_alive(pid: str) -> bool:
    """Does a process of this number run? True where that can't be known."""
    try:
        os.kill(int(pid), 0)
    # Signal 0 only asks. A process of another user answers with PermissionError (an OSError), and
    # lives.
    except (ProcessLookupError, ValueError):
        return False
    except OSError:
        pass
    return True


def _is_disk_full(error: Exception) -> bool:
    """Does an error say that the disk is full? safetensors says it in words alone, without a
    number.
    """
    # 28 is ENOSPC, as Rust prints it.
    return getattr(error, "errno", None) in DISK_FULL_ERRORS or any(
        f"os error {code}" in str(error) for code in DISK_FULL_ERRORS
    )
