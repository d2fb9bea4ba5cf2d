"""Reads the scores that the columns of a row give to the two sides of a preference pair.

`score_chosen`, `rejected_rating`, `margin` and their like are read by name. A rule then counts pairs whose chosen side
is worth less than the rejected one.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from truetune.data.column_name_aliases import Row

_SCORE_WORD = (
    "(?:avg_|average_|mean_|overall_)?(?:score|rating|reward|grade|stars|upvote|like|rank)s?"
)
_SIDE_SCORE = re.compile(
    rf"(?:(?P<before>chosen|rejected)_{_SCORE_WORD}|{_SCORE_WORD}_(?P<behind>chosen|rejected))"
)
_MARGIN = re.compile(r"(?:(?:score|rating|reward)_)?margin")


class PairScores(NamedTuple):
    """What the sides of a pair are worth."""

    chosen: float
    rejected: float
    is_rank: bool = False
    """1 is the best: lower is better"""

    @property
    def difference(self) -> float:
        """The chosen side's score less the rejected side's; above 0 if the chosen side is worth
        more.
        """
        return (self.rejected - self.chosen) if self.is_rank else (self.chosen - self.rejected)


def pair_scores_of_row(row: Row) -> PairScores | None:
    """The scores of both sides of a pair, or (margin, 0) if the row has only a margin; None if no
    columns say it.
    """
    sides: dict[str, float] = {}
    ranks: dict[str, float] = {}
    margin = None
    for key, value in row.items():
        name = str(key).lower().replace("-", "_").replace(".", "_").replace(" ", "_")
        side = _SIDE_SCORE.fullmatch(name)
        if side is None and _MARGIN.fullmatch(name) is None:
            continue
        number = _parse_number(value)
        if number is None:
            continue
        if side:
            # The first of two wins: `score_chosen` and `avg_score_chosen` may stand beside each
            # other.
            kind = ranks if "rank" in name else sides
            kind.setdefault(side["before"] or side["behind"], number)
        else:
            margin = number
    # One side's score alone compares nothing.
    if len(sides) == 2:
        return PairScores(sides["chosen"], sides["rejected"])
    if len(ranks) == 2:
        return PairScores(ranks["chosen"], ranks["rejected"], is_rank=True)
    return None if margin is None else PairScores(margin, 0.0)


def _parse_number(value: Any) -> float | None:
    """A score as a number, also if a CSV file holds it as text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    # NaN stands for a missing score in tables.
    return number if math.isfinite(number) else None
