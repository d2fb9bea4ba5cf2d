"""How rarely projects show a sign, by counts that are shipped: a rare one says more of its cause.

The counts are measured on the starts of the benchmarks (`python -m bench.sign_counts`) and shipped. The trade-off:
these are projects with a fault, and a sign of a usual fault counts as more usual than among all projects of the field.
"""

from __future__ import annotations

import hashlib
import json
import math
from functools import cache
from pathlib import Path

from truetune.troubleshooting.signs.sign_as_statement_patterns import Sign

COUNTS = Path(__file__).parent / "sign_counts.json"
# A sign that was changed since the last count: about the median of all, 1 in 100 projects.
UNCOUNTED_SHARE = 0.01


def rarity_of_sign(sign: Sign) -> float:
    """How rare a sign is: the logarithm of one over the share of projects that show it, 0 for all,
    4.6 for one of a hundred.
    """
    starts, counts = _read_sign_counts()
    count = counts.get(count_key_of_sign(sign))
    # One more than was counted: what was never seen is not infinitely rare.
    share = UNCOUNTED_SHARE if count is None else (count + 1) / (starts + 1)
    return -math.log(share)


@cache
def count_key_of_sign(sign: Sign) -> str:
    """What the counts know a sign by: its patterns, whatever causes they are signs of."""
    patterns = "\0".join(sign._replace(words=""))
    return hashlib.sha256(patterns.encode()).hexdigest()[:16]


@cache
def _read_sign_counts() -> tuple[int, dict[str, int]]:
    """The number of projects, and how many show each sign."""
    counted = json.loads(COUNTS.read_text(encoding="utf-8"))
    return int(counted["starts"]), dict(counted["counts"])
