"""Finds processes of one run that print the same loss at each step.

Under data parallelism each process has rows of its own, and so a loss of its own. Equal losses have two reasons: the
loss was averaged over the processes before it was printed, or all of them have the same batch. The losses alone do
not tell which; the counts of rows and steps do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from truetune.logs.console.figures_that_differ_between_ranks import RANK_NUMBER, STEP_NUMBER

PRINTED_LOSS = re.compile(
    r"(?<![\w/.])(?:train(?:ing)?[_ /])?loss['\"]?[ =:]{1,4}(?P<value>\d{1,6}\.\d{4,20})(?![\w.])",
    re.IGNORECASE,
)
"""A loss with four digits behind the point: of fewer, many agree by chance"""
MAX_STEPS = 5_000
"""Chosen, not measured: it bounds the memory, and what has the same batches has them from the first step on"""
MIN_STEPS = 10
"""Chosen, not measured: two losses of four digits agree by chance once in thousands of steps"""
MIN_EQUAL_SHARE = 0.95
"""Share of the steps. Chosen, not measured: a kernel that adds in another order may change the last digit"""


@dataclass(frozen=True, slots=True)
class EqualRankLosses:
    """Losses that several processes print alike."""

    ranks: int
    steps: int
    """Steps at which several processes print their loss"""
    equal: int
    """Those at which all print the same one"""
    last_step: int
    last_loss: float


@dataclass(slots=True)
class RankLossReader:
    """Collects the losses by step and process."""

    _losses: dict[int, dict[str, float]] = field(default_factory=dict)

    def add_line(self, process: str, text: str) -> None:
        """Read one line; `process` is the one that its prefix names, if any."""
        if "loss" not in text or (not process and "rank" not in text.lower()):
            return
        step, loss = STEP_NUMBER.search(text), PRINTED_LOSS.search(text)
        if step is None or loss is None:
            return
        rank = process or next(iter(RANK_NUMBER.findall(text)), "")
        number = int(step[1])
        if rank and (number in self._losses or len(self._losses) < MAX_STEPS):
            self._losses.setdefault(number, {})[rank] = float(loss["value"])

    def finish(self) -> EqualRankLosses | None:
        """The losses, if the processes print the same ones at nearly every step."""
        several = {step: ranks for step, ranks in self._losses.items() if len(ranks) > 1}
        equal = [step for step, ranks in several.items() if len(set(ranks.values())) == 1]
        if len(equal) < max(MIN_STEPS, MIN_EQUAL_SHARE * len(several)):
            return None
        return EqualRankLosses(
            ranks=max(len(ranks) for ranks in several.values()),
            steps=len(several),
            equal=len(equal),
            last_step=max(equal),
            last_loss=next(iter(several[max(equal)].values())),
        )
