"""Folders that are there whole or not at all, and the small files that go with weights."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from truetune.data.atomic import sync
from truetune.errors import UsageError
from truetune.render.folder import OF_TOKENIZER

BESIDE = ("tokenizer.model.v*", "tekken.json", "*.tiktoken", "preprocessor_config.json", "processor_config.json")
"""What a tokenizer or processor is made of, besides `OF_TOKENIZER`"""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ROOM = 64 << 20
"""Bytes for what stands beside the weights"""


@contextmanager
def whole(folder: Path, *, size: int) -> Iterator[Path]:
    """A new folder beside `folder`, which takes its name at the end; after an error nothing is left of it.

    `size` is the bytes that will be written. What a killed process has left is removed. Raises UsageError where there
    is something already, or no room.
    """
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder}: is there already; name another folder with -o, or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(f".{folder.name}.*.part"):
        if not _alive(left.name.split(".")[-2]):
            shutil.rmtree(left, ignore_errors=True)
    free = shutil.disk_usage(folder.parent).free
    if free < size + ROOM:
        raise UsageError(f"{folder}: needs {size + ROOM:,} bytes, and {free:,} are free; nothing was written")
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        part.mkdir()
        yield part
        for path in sorted(part.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        sync(part)
        part.replace(folder)
        sync(folder.parent)
    except Exception as error:
        if _full(error):
            raise UsageError(f"{folder}: the disk is full; nothing of it was left there") from error
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def copy_tokenizer(source: Path, to: Path) -> list[str]:
    """The files of a tokenizer with its templates, as they are; gives their names."""
    named = [source / name for name in OF_TOKENIZER]
    found = [path for path in (*named, *(p for glob in BESIDE for p in sorted(source.glob(glob)))) if path.is_file()]
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
    return getattr(error, "errno", None) in FULL or any(f"os error {code}" in str(error) for code in FULL)
