"""A draft of what stands in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from truetune.errors import SpecError
from truetune.spec.config import Place, Stack
from truetune.spec.located import Keys, Located
from truetune.spec.stacks.draft import Draft


def draft_of(
    document: Located,
    stack: Stack,
    version: str,
    defaults: Mapping[str, Any],
    known: Iterable[str] | None = None,
) -> Draft:
    """The file's keys and where they stand; only `known` ones take effect, where the stack drops the others.

    Raises SpecError where the file holds something else.
    """
    value = document.value
    if not isinstance(value, dict):
        found = "nothing" if value is None else f"a {type(value).__name__}"
        raise SpecError(f"{document.path}: expected settings by name, found {found}")
    where = {str(key): place(document, (str(key),)) for key in value}
    raw = {str(key): item for key, item in value.items()}
    taken = raw.keys() if known is None else raw.keys() & set(known)
    values = {key: item for key, item in raw.items() if key in taken}
    return Draft(stack, version, document.path, values, where, defaults, document.text, raw)


def place(document: Located, keys: Keys) -> Place:
    """Where a key stands."""
    spot = document.spot(*keys)
    line, column = spot if spot is not None else (1, 1)
    return Place(document.path, line, ".".join(map(str, keys)), column)
