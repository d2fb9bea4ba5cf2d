"""A round of blind cases as it is kept: truths and results that can be read, and the sealed files of its cases.

Writers who know only the README and `--help` make each case: a folder with the fault, a twin
without it, and the command that a user would type. A round is sealed before the first run. Its
files are one archive, so that nobody meets a case while searching the code, and so that one digest
says that none was changed afterwards. Large files that are copies of files of the tests' real parts
are not kept: the archive names the part instead.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from tests.parts import folder as folder_of_part

ROUNDS = Path(__file__).parent / "rounds"
ARCHIVE = "cases.tar.xz"
COPIES_OF_PARTS = "copies_of_parts.json"
LEFT_OUT = "left_out.json"
"""Digests of files that are too large to keep"""
PLACE_OF_PARTS = "{parts}"
"""Stands in texts for the folder in which the real parts lie: it differs between machines."""

Station = Literal[
    "rows", "template", "config", "script", "log", "weights", "run", "reward", "rollout"
]


class BlindCase(BaseModel):
    """What the writer of a case says of it, and which rules are about its fault."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """`WRITER/caseNN` or `WRITER/healthyNN`."""
    station: Station
    command: str
    """What a user would type in its folder."""
    fault: str = ""
    """What is wrong, and where; empty for a healthy set-up."""
    consequence: str = ""
    visible: str = ""
    """The facts by which an attentive expert sees it."""
    source: str = ""
    """The public thread that it was taken from."""
    why: str = ""
    """What looks odd in a healthy set-up, and is right."""
    expected: str = ""
    """What a right finding says; in rounds whose writers said it before the first run."""
    expected_rules: tuple[str, ...] = ()
    """Rules that were right by their titles, chosen with `expected`; empty where none was known."""
    named_by: tuple[str, ...] = ()
    """Rules whose finding names the fault; set by the judge of the first result, and extended by later fixes."""
    disputed: str = ""
    """Why the case does not count, where its fault or its twin proved to be wrong."""

    @property
    def is_faulty(self) -> bool:
        """Does it hold a fault?"""
        return bool(self.fault)


def read_cases(number: int) -> list[BlindCase]:
    """The cases of a round, in order.

    Raises:
        FileNotFoundError: there is no such round.
    """
    text = (ROUNDS / str(number) / "cases.yaml").read_text(encoding="utf-8")
    return [BlindCase.model_validate(case) for case in yaml.safe_load(text)]


def write_cases(number: int, cases: list[BlindCase]) -> None:
    """Keep what is said of a round's cases."""
    records = [case.model_dump(mode="json", exclude_defaults=True) for case in cases]
    text = yaml.safe_dump(records, sort_keys=False, allow_unicode=True, width=110)
    (ROUNDS / str(number) / "cases.yaml").write_text(text, encoding="utf-8")


def seal_round(number: int, written: Path, parts: Path) -> str:
    """Keep what writers wrote below `written`, `WRITER/caseNN/...`.

    Args:
        number: of the round.
        written: the writers' folders.
        parts: the folder of the real parts that their texts name.

    Returns:
        The digest of the archive.
    """
    target = ROUNDS / str(number)
    target.mkdir(parents=True)
    folders = sorted(path.parent for path in written.glob("*/*/truth.yaml"))
    write_cases(number, [_read_truth(folder, written, parts) for folder in folders])
    known = {_digest(path): f"{path.parent.name}/{path.name}" for path in _large_files(parts)}
    copies: dict[str, str] = {}
    left_out: dict[str, str] = {}
    with (
        lzma.open(target / ARCHIVE, "wb", filters=FILTERS) as compressed,
        tarfile.open(fileobj=compressed, mode="w|") as archive,
    ):
        for path in (file for folder in folders for file in sorted(folder.rglob("*"))):
            name = str(path.relative_to(written))
            if not path.is_file() or path.name == "truth.yaml" or "__pycache__" in path.parts:
                continue
            part = known.get(_digest(path)) if path.stat().st_size > LARGE_BYTES else None
            if path.stat().st_size > LARGEST_KEPT_BYTES and part is None:
                left_out[name] = _digest(path)
            elif part is None:
                _add(archive, name, _without_place(path.read_bytes(), parts))
            else:
                copies[name] = part
        _add(archive, COPIES_OF_PARTS, json.dumps(copies, indent=1).encode())
        _add(archive, LEFT_OUT, json.dumps(left_out, indent=1).encode())
    digest = _digest(target / ARCHIVE)
    (target / f"{ARCHIVE}.sha256").write_text(f"{digest}  {ARCHIVE}\n", encoding="utf-8")
    return digest


FILTERS = ({"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 27},)
"""A twin repeats most of its faulty folder: the dictionary reaches back over weights of 100 MB."""
LARGE_BYTES = 100_000
"""Below this a copy of a part's file costs less than the reference to it."""
LARGEST_KEPT_BYTES = 4_000_000
"""Random weights can't be compressed: above this a file is left out, and its case can't be run again."""


def unpack_round(number: int, target: Path) -> None:
    """Lay out all folders of a round's cases below `target`.

    Raises:
        ValueError: the archive is not the one that was sealed.
    """
    source = ROUNDS / str(number)
    sealed = (source / f"{ARCHIVE}.sha256").read_text(encoding="utf-8").split()[0]
    if _digest(source / ARCHIVE) != sealed:
        raise ValueError(f"{source / ARCHIVE} is not the archive that was sealed")
    with tarfile.open(source / ARCHIVE) as archive:
        archive.extractall(target, filter="data")
    for path in (file for file in target.rglob("*") if file.is_file()):
        content = path.read_bytes()
        if PLACE_OF_PARTS.encode() in content:
            path.write_bytes(
                content.replace(PLACE_OF_PARTS.encode(), str(place_of_parts()).encode())
            )
    copies = json.loads((target / COPIES_OF_PARTS).read_text(encoding="utf-8"))
    for name, part in copies.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes((place_of_parts() / part).read_bytes())


def place_of_parts() -> Path:
    """The folder in which the real parts lie."""
    return folder_of_part("gpt2").parent


def _read_truth(folder: Path, written: Path, parts: Path) -> BlindCase:
    record = yaml.safe_load((folder / "truth.yaml").read_text(encoding="utf-8"))
    texts = {key: " ".join(str(value).split()) for key, value in record.items()}
    texts = {key: text.replace(str(parts), PLACE_OF_PARTS) for key, text in texts.items()}
    # Some writers took the brief's `{tokenizer}` for the way to name a part.
    texts["command"] = re.sub(r"\{([a-z]+\d[\w.-]*)\}", PLACE_OF_PARTS + r"/\1", texts["command"])
    return BlindCase.model_validate({"name": str(folder.relative_to(written)), **texts})


def _without_place(content: bytes, parts: Path) -> bytes:
    return content.replace(str(parts).encode(), PLACE_OF_PARTS.encode())


def _large_files(parts: Path) -> Iterator[Path]:
    return (
        path for path in parts.glob("*/*") if path.is_file() and path.stat().st_size > LARGE_BYTES
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
