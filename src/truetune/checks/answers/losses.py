"""The curves of the losses by source."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from truetune.generation.looks import Watched


def curve(watched: Watched, source: str) -> list[float]:
    """The losses of one source, in order of their steps."""
    return [record.by_source[source] for record in watched.losses if source in record.by_source]


def ends(values: Sequence[float]) -> tuple[float, float]:
    """Level at first and at last: the first value, the median of the last third."""
    return values[0], median(values[-max(1, len(values) // 3) :])
