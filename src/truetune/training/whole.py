"""Folders that are there whole or not at all, and the small files that go with weights."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from truetune.data import atomic
from truetune.data.output_folder import Input, check_output_folder, remove_empty_folders
from truetune.errors import UsageError
from truetune.render.tokenizer_folder import TOKENIZER_FILES

BESIDE = (
    "tokenizer.model.v*",
    "tekken.json",
    "*.tiktoken",
    "preprocessor_config.json",
    "processor_config.json",
)
"""What a tokenizer or processor is made of, besides `OF_TOKENIZER`"""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ROOM = 64 << 20
"""Bytes for what stands beside the weights"""
FORMAT = 1
OWNER, MODEL = "truetune-work.json", "model"
"""In a work folder: the file that marks it as ours, and what will get the name of the output"""
WRITTEN = re.compile(
    r"(adapter_)?model(-\d+-of-\d+)?\.safetensors(\.index\.json)?|.+\.gguf|tokenizer.*|.*\.tiktoken|.*\.jinja|README\.md"
    r"|(config|generation_config|merge|special_tokens_map|added_tokens|chat_template|vocab|tekken|preprocessor_config"
    r"|processor_config|adapter_config)\.json|(vocab|merges)\.txt|spiece\.model|.+\.py"
)
"""Names of files that a merge or an export writes"""


def check_new_folder(folder: Path, inputs: Sequence[Input]) -> None:
    """Raise UsageError where a folder is an input, holds one or lies in one, or has anything in it already."""
    check_output_folder(folder, inputs)
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"{folder}: already exists, and is no folder; name another folder with -o")
    first = min((path.name for path in folder.iterdir()), default=None) if folder.is_dir() else None
    if first is not None:
        raise UsageError(
            f"{folder}: already exists, and holds {first}; nothing was written: name another folder"
            " with -o, or remove this one"
        )


@contextmanager
def whole(folder: Path, *, size: int, inputs: Sequence[Input]) -> Iterator[Path]:
    """A new folder beside `folder`, which takes its name at the end; after an error nothing is left of it.

    What is written stands in `model` of a work folder, beside a file that marks this as ours. What a killed process has
    left is removed where it bears that mark, as far as its files have names that are written here.

    Args:
        folder: need not be there; an empty one is taken.
        size: bytes that will be written.
        inputs: what is read; `folder` must be none of it, hold none of it and lie in none of it.

    Raises UsageError where something is in the folder already, or there is no room.
    """
    check_new_folder(folder, inputs)
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(f".{folder.name}.*.part"):
        if _process_of(left) is not None and not _alive(_process_of(left) or ""):
            _remove_work(left)
    free = shutil.disk_usage(folder.parent).free
    if free < size + ROOM:
        raise UsageError(
            f"{folder}: needs {size + ROOM:,} bytes, and {free:,} are free; nothing was written"
        )
    work = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    part = work / MODEL
    try:
        work.mkdir()
        atomic.write_atomically(work / OWNER, _mark(str(os.getpid())))
        part.mkdir()
        yield part
        for path in sorted(part.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        atomic.sync_folder(part)
        part.replace(folder)
        atomic.sync_folder(folder.parent)
    except FileExistsError:
        raise UsageError(
            f"{work}: already exists, and truetune did not write it; move it elsewhere"
        ) from None
    except Exception as error:
        if _full(error):
            raise UsageError(
                f"{folder}: the disk is full; nothing of it was left there: make room, or name"
                " another folder with -o"
            ) from error
        raise
    finally:
        _remove_work(work)


def _mark(process: str) -> bytes:
    return json.dumps(
        {"truetune": "a model that is being written", "format": FORMAT, "process": process}
    ).encode()


def _process_of(work: Path) -> str | None:
    """The process in the name of a work folder of ours; None where it does not bear our mark."""
    process = work.name.split(".")[-2]
    try:
        ours = not work.is_symlink() and (work / OWNER).read_bytes() == _mark(process)
    except OSError:
        return None
    return process if ours else None


def _remove_work(work: Path) -> None:
    """Remove a work folder that bears our mark. A file that has no name of ours stays, and so does the folder then."""
    if _process_of(work) is None:
        return
    folders = {work / MODEL}
    for path in (work / MODEL).rglob("*"):
        if path.is_dir() and not path.is_symlink():
            folders.add(path)
        elif path.is_file() and not path.is_symlink() and WRITTEN.fullmatch(path.name):
            path.unlink()
    remove_empty_folders(folders)
    if {path.name for path in work.iterdir()} == {OWNER}:
        (work / OWNER).unlink()
        work.rmdir()


def copy_tokenizer(source: Path, to: Path) -> list[str]:
    """The files of a tokenizer with its templates, as they are; gives their names."""
    named = [source / name for name in TOKENIZER_FILES]
    found = [
        path
        for path in (*named, *(p for glob in BESIDE for p in sorted(source.glob(glob))))
        if path.is_file()
    ]
    for path in found:
        shutil.copyfile(path, to / path.name)
    templates = source / "additional_chat_templates"
    if templates.is_dir():
        shutil.copytree(templates, to / templates.name, dirs_exist_ok=True)
    return [path.name for path in found]


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:
        pass
    return True


def _full(error: Exception) -> bool:
    """safetensors spells its errors out, and gives no number."""
    return getattr(error, "errno", None) in FULL or any(
        f"os error {code}" in str(error) for code in FULL
    )
