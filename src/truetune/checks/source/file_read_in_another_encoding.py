"""A script reads a UTF-8 file in another encoding.

## What it does
Looks at `open`, `read_text`, and the readers of pandas and codecs with `encoding="latin-1"`, `"cp1252"` or the like. It
fires if the script names the file (an option's default counts), the file is here, and its bytes are valid UTF-8 with
multi-byte characters.

## Why it is bad
Nothing fails, because each byte is some character in these encodings. Every accented letter becomes two characters
(`Ã¼` for `ü`), the model learns to write them that way, and the tokenizer or the weights get the blame.

## Example
```python
import json

# rows.json: [{"question": "Wann?", "answer": "Um zwölf für alle"}]
with open("rows.json", encoding="latin-1") as file:
    rows = json.load(file)
```

## Use instead
```python
import json

# rows.json: [{"question": "Wann?", "answer": "Um zwölf für alle"}]
with open("rows.json", encoding="utf-8") as file:
    rows = json.load(file)
```

## Fix safety
Safe: Latin-1 text is almost never valid UTF-8. Files written from the wrongly read text have to be written again.

## References
- Python documentation, "Unicode HOWTO"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Result, Value

_NAMES = "latin1 latin iso88591 iso885915 cp1252 windows1252 l1 cp850 cp437 macroman"
SINGLE_BYTE = frozenset(_NAMES.split())
"""Encodings in which each byte is a character, without marks"""
READERS = ("open", "io.open", "codecs.open", "pandas.read_*", "polars.read_*", "*.load_dataset")
METHODS = ("open", "read_text")
MAX_BYTES = 1 << 22
"""Of a file that is looked at"""
MIN_CHARACTERS = 1
"""Characters of several bytes that prove UTF-8, where all of the file is valid"""


class MisreadFile(NamedTuple):
    """A file, and the place that reads it in another encoding."""

    node: ast.AST
    name: str
    encoding: str
    characters: int
    """Of several bytes"""
    sample: str


def _single_byte_reads(module: Module) -> Iterator[CallEvent]:
    """The calls of a file that read in an encoding of single bytes."""
    if not module.mentions("encoding"):
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.all_calls:
            if (
                call.home.path != module.path
                or call.node in seen
                or not _single_byte_encoding(call)
            ):
                continue
            if call.named(*READERS) or call.method in METHODS:
                seen.add(call.node)
                yield call


class FileReadInAnotherEncoding(SourceRule):
    code = "SRC190"
    fault = Fault.TEXTS_IN_WRONG_ENCODING
    symptoms = ("garbage-output",)
    severity = "error"
    looks_at = CodePlaces("files that are read in an encoding of single bytes", _single_byte_reads)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in _single_byte_reads(module):
            misread_file = _misread_utf8_file(module, call)
            if misread_file is not None:
                yield self.finding(
                    f"{misread_file.name} is UTF-8 but is read as {misread_file.encoding}: each of its"
                    f" {misread_file.characters:,} characters beyond ASCII becomes two or more wrong ones",
                    'set encoding="utf-8", and write again all files that were made from it',
                    evidence=[f"the script reads {misread_file.sample!r} there"],
                    cases=[case_of_node(module, misread_file.node)],
                )


def _single_byte_encoding(call: CallEvent) -> str | None:
    """The encoding that a call names, where it is one of single bytes."""
    value = call.keywords.get("encoding")
    if value is None and call.method == "read_text" and call.args:
        value = call.args[0]
    if value is None and call.named("codecs.open"):
        value = call.argument(2, "encoding")
    name = constant_of(value) if value is not None else None
    if not isinstance(name, str):
        return None
    bare = "".join(one for one in name.lower() if one.isalnum())
    return name if bare in SINGLE_BYTE else None


def _misread_utf8_file(module: Module, call: CallEvent) -> MisreadFile | None:
    """What is wrong with one call; None where its file is not here, is written, or is not UTF-8."""
    encoding, path = _single_byte_encoding(call), _existing_path(module, call)
    mode = constant_of(call.keywords.get("mode") or _mode_by_position(call))
    if encoding is None or path is None or (isinstance(mode, str) and set(mode) & set("wax")):
        return None
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES)
    except OSError:
        return None
    text = _decode_utf8(data)
    if text is None:
        return None
    wide = [number for number, character in enumerate(text) if ord(character) > 0x7F]
    if len(wide) < MIN_CHARACTERS:
        return None
    around = text[max(0, wide[0] - 10) : wide[0] + 10]
    sample = around.encode("utf-8").decode("latin-1")
    return MisreadFile(call.node, path.name, encoding, len(wide), sample)


def _mode_by_position(call: CallEvent) -> Value | None:
    """The mode of `open`, where it is given by its place."""
    place = 0 if call.method == "open" and not call.named(*READERS) else 1
    is_open = call.method == "open" or call.named("open", "io.open", "codecs.open")
    return call.args[place] if is_open and len(call.args) > place else None


def _decode_utf8(data: bytes) -> str | None:
    """The text of bytes in UTF-8, of which the last character may be cut; None where they are not."""
    for end in range(len(data), max(len(data) - 4, -1), -1):
        try:
            return data[:end].decode("utf-8")
        except UnicodeDecodeError:
            if len(data) < MAX_BYTES:
                return None
    return None


def _existing_path(module: Module, call: CallEvent) -> Path | None:
    """The file that a call reads, where it is here."""
    given = call.args[0] if call.args else next(iter(call.keywords.values()), None)
    value = call.receiver if call.method in METHODS and not call.named(*READERS) else given
    name = _text_of_path(value)
    if not name:
        return None
    folder = Path(module.path).parent
    places = (folder / name, folder.parent / name)
    return next((place for place in places if place.is_file()), None)


def _text_of_path(value: Value | None) -> str | None:
    """A path as text, through `Path(...)`."""
    if isinstance(value, Result) and value.call.named("pathlib.*Path", "Path", "os.path.join"):
        return _joined_path([_text_of_path(part) for part in value.call.args])
    operands = getattr(value, "operands", None)
    if operands and getattr(value, "operator", "") == "/":
        return _joined_path([_text_of_path(part) for part in operands])
    plain = constant_of(value)
    return plain if isinstance(plain, str) else None


def _joined_path(parts: list[str | None]) -> str | None:
    """The path that is joined of these parts; None where there is none, or one is not known."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return str(Path(*known))
