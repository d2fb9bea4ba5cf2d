"""Reads from progress bars how many batches an epoch has for one process, and how long it takes.

Lightning's bars and those of loops of one's own begin again with each epoch. A stream has no length, so that its bar
has a question mark where others have their total: then the last drawing says how many there were. The trade-off: the
last epoch of a stream that was stopped within it counts as whole, so the median over all epochs is given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from statistics import median

EPOCH_BAR = re.compile(
    r"[Ee]poch[\s:\[]{0,3}(?P<epoch>\d{1,6})(?:/\d{1,6})?\]?:?[ \d%]{0,8}\|[^|\r\n]{0,200}\| {0,4}"
    r"(?P<done>\d{1,9})/(?P<total>\d{1,9}|\?) \[(?P<gone>[\d:]{4,12})<"
)
"""`Epoch 0: |   | 3000/? [54:37<00:00`, `Epoch 1/3: 100%|███| 3000/3000 [54:37<00:00`"""
MAX_EPOCHS = 1_000
"""Whose bars are kept. Chosen: a log of more epochs is one of tiny epochs"""


@dataclass(frozen=True, slots=True)
class EpochBars:
    """What the bars of whole epochs say."""

    batches: int = 0
    """Of an epoch; 0 where no bar says it"""
    seconds: float = 0.0


@dataclass(slots=True)
class EpochBarReader:
    """Takes the lines of one stream."""

    _last: dict[int, tuple[int, str, float]] = field(default_factory=dict)
    """Epoch -> batches, total and seconds of its last drawing"""

    def add_line(self, text: str) -> None:
        """Read one line, or the part of it between two carriage returns."""
        # Nearly all lines draw no bar: two words say so at a fraction of the pattern's cost.
        if "poch" not in text or "|" not in text:
            return
        match = EPOCH_BAR.search(text)
        if match is None or len(self._last) >= MAX_EPOCHS:
            return
        parts = [int(part) for part in match["gone"].split(":") if part]
        seconds = sum(part * 60**power for power, part in enumerate(reversed(parts)))
        self._last[int(match["epoch"])] = (int(match["done"]), match["total"], float(seconds))

    def read(self) -> EpochBars:
        """What was seen of epochs that are whole, as far as their bars say."""
        whole = [one for one in self._last.values() if one[1] in ("?", str(one[0])) and one[0]]
        if not whole:
            return EpochBars()
        return EpochBars(
            int(median(batches for batches, _, _ in whole)),
            float(median(seconds for _, _, seconds in whole)),
        )
