"""Configs, scripts and notebooks that ship as examples inside packages of others: what truetune says of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bench.bugs.run import truetune
from tests.parts.packages import unpack


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding about an example."""

    rule: str
    severity: str
    message: str


@dataclass(frozen=True, slots=True)
class Example:
    """A file of a package, and what was said of it."""

    package: str
    file: str
    remarks: tuple[Remark, ...]
    seconds: float
    note: str = ""
    """Why there is no report"""


@cache
def listed() -> dict[str, Any]:
    """healthy.yaml."""
    told: dict[str, Any] = yaml.safe_load(
        Path(__file__).with_name("healthy.yaml").read_text("utf-8")
    )
    return told


def files() -> Iterator[tuple[str, Path, str]]:
    """(package, its folder, file below it) of every example. Raises Missing where a package can't be had."""
    for package, patterns in listed()["examples"].items():
        folder = unpack(package)
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and any(fnmatchcase(name, pattern) for pattern in patterns["take"]):
                if not any(fnmatchcase(name, pattern) for pattern in patterns.get("leave", ())):
                    yield package, folder, name


def run() -> list[Example]:
    """`truetune check` on each of them."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = []
        for example in pool.map(lambda place: looked_at(*place), files()):
            for remark in example.remarks:
                print(
                    f"{example.package} {example.file}: {remark.severity}: {remark.rule}:"
                    f" {remark.message}",
                    flush=True,
                )
            if example.note:
                print(f"{example.package} {example.file}: {example.note}", flush=True)
            done.append(example)
        return done


def looked_at(package: str, folder: Path, name: str) -> Example:
    """What truetune says of one file, notes left out."""
    said = truetune(["check", str(folder / name)], folder)
    remarks = tuple(
        Remark(f["rule"], f["severity"], f["message"])
        for f in said.findings
        if f["severity"] != "info"
    )
    return Example(package, name, remarks, round(said.seconds, 2), said.error)


def judgement(example: Example, remark: Remark) -> dict[str, Any] | None:
    """What healthy.yaml says of a remark: whether it is true, and why; None where nobody looked at it yet."""
    for entry in listed().get("judged", ()):
        if entry["rule"] == remark.rule and fnmatchcase(
            f"{example.package}/{example.file}", entry["file"]
        ):
            if fnmatchcase(remark.message, entry.get("says", "*")):
                return dict(entry)
    return None
