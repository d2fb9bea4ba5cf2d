"""TOML behind the guard: parts of dotted keys, nesting, and the number of values.

Python's reader is recursive in Python, so that depth raises an error there and never ends the process. What it does not
bound is time and what its callers walk: keys are counted before it reads, values afterwards.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from truetune.parsing.input_limits import SETTINGS, InputLimitError, Limits, check_size
from truetune.parsing.json_reader import check_whole_numbers

_DOTTED = re.compile(r"^[^=\n#]*", re.MULTILINE)
"""What stands before the first `=` of a line: a key, or the name of a table."""


def parse_toml(text: str, limits: Limits = SETTINGS) -> dict[str, Any]:
    """A TOML document. Raises InputLimitError, and ValueError (tomllib.TOMLDecodeError) with the line."""
    check_size(len(text), limits)
    # The time that tomllib takes for a dotted key grows with the square of its parts.
    for key in _DOTTED.finditer(text):
        if key[0].count(".") > limits.max_nesting:
            line = text.count("\n", 0, key.start()) + 1
            raise InputLimitError(f"a key of more than {limits.max_nesting} parts", line)
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise InputLimitError(f"nested more than {limits.max_nesting} deep") from None
    # Afterwards, unlike JSON: a document of 1 MiB, the limit for settings, can't hold more than can
    # be held.
    _check_nesting_and_count(value, limits)
    check_whole_numbers(value)
    return value


def _check_nesting_and_count(value: Any, limits: Limits) -> None:
    """Nesting and number of values, level by level, so that no depth is too deep for this check."""
    level: list[Any] = [value]
    count = depth = 0
    while level:
        depth += 1
        containers = [item for item in level if isinstance(item, (dict, list))]
        level = [
            inner
            for item in containers
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        count += len(level)
        if containers and depth > limits.max_nesting:
            raise InputLimitError(f"nested more than {limits.max_nesting} deep")
        if count > limits.max_values:
            raise InputLimitError(
                f"more than {limits.max_values:,} values, the limit for {limits.name}"
            )
