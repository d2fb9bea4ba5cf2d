"""The built site as files: what it links to, what it loads, and the anchors that it has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from html import unescape
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
TAG = re.compile(r"<(?!/|!)(?P<tag>[a-z]\w*)(?P<given>(?:\s+[\w:-]+(?:=\"[^\"]*\")?)*)\s*/?>")
GIVEN = re.compile(r"([\w:-]+)=\"([^\"]*)\"")
ADDRESSES = ("href", "src", "srcset", "poster", "data")


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a copy of this checkout into `folder`/site, as its documents say."""
    checkout = folder / "checkout"
    checkout.mkdir()
    for path in ROOT.iterdir():
        if path.is_file():
            copy(path, checkout)
        elif path.name not in ("docs", "site") and not path.name.startswith("."):
            (checkout / path.name).symlink_to(path)
    copytree(ROOT / "docs", checkout / "docs", ignore=ignore_patterns("rules", "__pycache__"))
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "docs",
        str(folder / "site"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HTTPS_PROXY": "http://127.0.0.1:9"}
    return subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, env=environment, check=False
    )


class Tag(NamedTuple):
    """A tag with its attributes."""

    name: str
    given: dict[str, str]


class Page:
    """One HTML file of the site."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")

    @cached_property
    def tags(self) -> list[Tag]:
        """In order."""
        found = TAG.finditer(re.sub(r"(?s)<script>.*?</script>|<style>.*?</style>", "", self.text))
        return [
            Tag(m["tag"], {k: unescape(v) for k, v in GIVEN.findall(m["given"])}) for m in found
        ]

    @cached_property
    def anchors(self) -> set[str]:
        """The ids."""
        return {tag.given["id"] for tag in self.tags if "id" in tag.given}

    @cached_property
    def title(self) -> str:
        """What stands in the browser's tab."""
        found = re.search(r"(?s)<title>(.*?)</title>", self.text)
        return unescape(found[1]).strip() if found else ""

    def targets(self) -> Iterator[tuple[Tag, str]]:
        """Each address that the page names, with the tag that names it."""
        for tag in self.tags:
            yield from (
                (tag, tag.given[name])
                for name in ("href", "src", "srcset", "poster", "data")
                if name in tag.given
            )


def pages(site: Path) -> dict[Path, Page]:
    """All of them, by path."""
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def loaded_from_outside(site: Path, found: dict[Path, Page]) -> list[str]:
    """What a browser would fetch from elsewhere: everything but links that one can click."""
    outside = re.compile(r"(?:https?:)?//")
    said = [
        f"{page.path.relative_to(site)}: <{tag.name}> {target}"
        for page in found.values()
        for tag, target in page.targets()
        if outside.match(target) and tag.name != "a"
    ]
    for path in site.rglob("*.css"):
        imports = re.findall(
            r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)",
            path.read_text(encoding="utf-8"),
        )
        said += [f"{path.relative_to(site)}: {target}" for target in imports]
    return said


def broken_links(site: Path, found: dict[Path, Page]) -> list[str]:
    """Links inside the site whose file or anchor is not there."""
    said = []
    for page in found.values():
        for tag, target in page.targets():
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or not target:
                continue
            path = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            to, anchor = found.get(path), unquote(parts.fragment)
            missing = to is None and not path.is_file()
            if missing or (to and anchor and anchor not in to.anchors):
                said.append(f"{page.path.relative_to(site)}: <{tag.name}> {target}")
    return said
