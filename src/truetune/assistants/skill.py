"""Gives the skill for coding assistants that ships with the package, and installs it into a folder.

A skill is a Markdown file with a head, in a folder of its own below the assistant's folder of skills. The installed
file ends in a line with the digest of the text above it. So a newer truetune replaces its own file, and a file
that somebody else wrote, or edited after it was installed, is refused and stays as it is.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from truetune.data.guard_output_file import FileForm, write_output_file
from truetune.errors import UsageError
from truetune.package import PACKAGE_FOLDER, __version__

SKILL_NAME = "truetune"
"""The folder of the skill; its head says the same name"""
SKILL_FILE = "SKILL.md"
_SIGNATURE = re.compile(rb"<!-- truetune [^\n ]+: skill ([0-9a-f]{64}) -->\n")


def read_skill() -> str:
    """The text of the skill, as it ships with the package."""
    return (PACKAGE_FOLDER / "assistants" / SKILL_FILE).read_text(encoding="utf-8")


def install_skill(folder: Path) -> Path:
    """Write the skill to `folder/truetune/SKILL.md`, whole or not at all.

    Args:
        folder: an assistant's folder of skills; it is made if it is not there.

    Returns:
        The file that was written.

    Raises:
        UsageError: the file can't be written, or a file is there that truetune did not write or that was edited.
    """
    target = folder / SKILL_NAME / SKILL_FILE
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{target.parent}: can't be made: {error.strerror}") from None
    form = FileForm("a skill that truetune wrote and nobody edited", _is_unedited_skill)
    write_output_file(target, _append_digest_line(read_skill().encode()), form)
    return target


def _append_digest_line(body: bytes) -> bytes:
    """The text with a last line that holds the digest of all above it."""
    digest = hashlib.sha256(body).hexdigest()
    return body + f"<!-- truetune {__version__}: skill {digest} -->\n".encode()


def _is_unedited_skill(path: Path) -> bool:
    """Is a file a skill that truetune wrote, and is it as it was written? Raises OSError."""
    body, newline, last = path.read_bytes().removesuffix(b"\n").rpartition(b"\n")
    signature = _SIGNATURE.fullmatch(last + b"\n")
    return (
        signature is not None
        and hashlib.sha256(body + newline).hexdigest().encode() == (signature[1])
    )
