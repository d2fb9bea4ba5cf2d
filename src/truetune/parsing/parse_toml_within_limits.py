"""Parses TOML within limits on the parts of dotted keys, on nesting, and on the number of values.

Python's reader is recursive in Python, so that depth raises an error there and never ends the process. What it does not
bound is time and what its callers walk: keys are counted before it reads, values afterwards.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from truetune.parsing.input_limits import SETTINGS, InputLimitError, Limits, refuse_too_large
from truetune.parsing.parse_json_within_limits import refuse_huge_whole_numbers

_DOTTED = re.compile(r"^[^=\n#]*", re.MULTILINE)
"""What stands before the first `=` of a line: a key, or the name of a table."""


def parse_toml(text: str, limits: Limits = SETTINGS) -> dict[str, Any]:
    """A TOML document. Raises InputLimitError, and ValueError (tomllib.TOMLDecodeError) with the line."""
    refuse_too_large(len(text), limits)
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
    _refuse_deep_or_many_values(value, limits)
    refuse_huge_whole_numbers(value)
    return value


def _refuse_deep_or_many_values(value: Any, limits: Limits) -> None:
    """Raise InputLimitError if a value nests too deeply or holds too many values. It goes level by
    level, so that no depth is too deep for this check.
    """
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
