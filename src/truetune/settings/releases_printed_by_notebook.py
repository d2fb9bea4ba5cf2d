"""Finds the releases of packages that the outputs of a notebook print, with which it ran.

An output is a fact of the last run, an install command only what was asked for. Read are what pip prints (`list`,
`show`, `freeze`, an install), `transformers.__version__` of a cell that shows nothing else, and lines such as
`transformers version: 4.57.1`. Where several outputs name a package, the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from truetune.parsing.input_limits import NOTEBOOK
from truetune.parsing.parse_json_within_limits import parse_json

NAMES = r"trl|transformers|peft|axolotl|llama-?factory|unsloth"
RELEASE = r"v?(?P<release>\d+\.\d+(?:\.\d+)?(?:\.?(?:post|dev|rc|a|b)\d+)?)"
PRINTED_LINE = re.compile(
    rf"^[ \t]{{0,8}}[\"']?(?P<name>{NAMES})[\"']?"
    r"(?:[ \t]{1,80}|={2}|[ _]?(?:version)?[\"']?[ \t]{0,4}[:=][ \t]{0,4})"
    rf"[\"']?{RELEASE}[\"']?[ \t,]*$",
    re.I,
)
"""A line of `pip list` or `pip freeze`, and `transformers: 4.57.1`, `Transformers version = 4.57.1`"""
ALREADY_THERE = re.compile(
    rf"^Requirement already satisfied: (?P<name>{NAMES})(?:\[[^\]]{{0,60}}\])?[ =<>!~,].{{0,400}}\({RELEASE}\)[ \t]*$",
    re.I,
)
INSTALLED = re.compile(r"^[ \t]{0,4}Successfully installed (?P<what>.+)$")
INSTALLED_NAME = re.compile(rf"(?<!\S)(?P<name>{NAMES})-{RELEASE}(?!\S)", re.I)
SHOWN_NAME = re.compile(rf"^Name: (?P<name>{NAMES})[ \t]*$", re.I)
SHOWN_VERSION = re.compile(rf"^Version: {RELEASE}[ \t]*$")
UNSLOTH_BANNER = re.compile(
    r"Unsloth (?P<unsloth>\d{4}\.\d+\.\d+): Fast .{0,80}?Transformers: (?P<transformers>\d+\.\d+\.\d+)"
)
VERSION_ATTRIBUTE = re.compile(rf"\b(?P<name>{NAMES})\.__version__", re.I)
RELEASE_ALONE = re.compile(rf"^[ \t]*[\"']?{RELEASE}[\"']?[ \t]*$")
MAX_VERSIONS_SHOWN = 6
"""Of one cell, each alone on its line. Chosen, not measured: a cell that shows more prints their names too"""


def releases_in_outputs(notebook: str) -> dict[str, tuple[str, int]]:
    """Package name in lower case -> the release that a notebook's outputs print, and the line of
    the file that prints it.

    Args:
        notebook: the text of the .ipynb file.
    """
    try:
        whole = parse_json(notebook, NOTEBOOK)
    except ValueError:
        return {}
    cells = whole.get("cells") if isinstance(whole, dict) else None
    releases: dict[str, tuple[str, int]] = {}
    for cell in cells if isinstance(cells, list) else ():
        if not isinstance(cell, dict) or not isinstance(cell.get("outputs"), list):
            continue
        for name, release, line in _releases_in_cell_outputs(cell):
            releases[name.lower().replace("-", "")] = (
                release,
                _line_number_in_file(notebook, line),
            )
    return releases


def _releases_in_cell_outputs(cell: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(name, release, line) for each release that the outputs of a cell print."""
    lines = [line for output in cell["outputs"] for line in _text_lines_of_output(output)]
    yield from _releases_printed_alone_for_version_attributes(
        _text_or_joined_lines(cell.get("source")), lines
    )
    shown = None
    for line in lines:
        for match in _name_and_release_matches(line):
            yield match["name"], match["release"], line
        banner = UNSLOTH_BANNER.search(line)
        if banner is not None:
            yield from ((name, release, line) for name, release in banner.groupdict().items())
        version = SHOWN_VERSION.match(line)
        if shown is not None and version is not None:
            yield shown, version["release"], line
        name = SHOWN_NAME.match(line)
        shown = name["name"] if name is not None else None


def _name_and_release_matches(line: str) -> Iterator[re.Match[str]]:
    """What of one line says a name and a release."""
    for pattern in (PRINTED_LINE, ALREADY_THERE):
        match = pattern.match(line)
        if match is not None:
            yield match
    installed = INSTALLED.match(line)
    if installed is not None:
        yield from INSTALLED_NAME.finditer(installed["what"])


def _releases_printed_alone_for_version_attributes(
    source: str, lines: list[str]
) -> Iterator[tuple[str, str, str]]:
    """`transformers.__version__`: releases that stand alone on their lines, as many as the cell asks for."""
    code = "\n".join(line for line in source.split("\n") if not line.lstrip().startswith("#"))
    names = [match["name"] for match in VERSION_ATTRIBUTE.finditer(code)]
    alone = [(match["release"], line) for line in lines if (match := RELEASE_ALONE.match(line))]
    if names and len(names) == len(alone) == code.count("__version__") <= MAX_VERSIONS_SHOWN:
        for name, (release, line) in zip(names, alone, strict=True):
            yield name, release, line


def _text_lines_of_output(output: Any) -> list[str]:
    """What one output shows as text; an error shows none."""
    if not isinstance(output, dict) or output.get("output_type") == "error":
        return []
    data = output.get("data")
    plain = data.get("text/plain") if isinstance(data, dict) else None
    return _text_or_joined_lines(output.get("text") or plain or "").splitlines()


def _text_or_joined_lines(text: Any) -> str:
    """A text that notebooks write as a string or as a list of lines."""
    return "".join(map(str, text)) if isinstance(text, list) else str(text or "")


def _line_number_in_file(notebook: str, line: str) -> int:
    """The last line of the file that holds this line of an output; the first where it is written with escapes."""
    at = notebook.rfind(line)
    return notebook.count("\n", 0, at) + 1 if at >= 0 else 1
