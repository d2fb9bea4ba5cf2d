"""What NCCL's watchdog prints of the collective operations that some processes waited in.

Each process prints the operation that it waited in: its number, kind and size. Ranks whose operations differ do
different things: one of them runs code that the others don't (a save, an evaluation), or has other rows. The line
before the first time-out often names that code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from truetune.logs.console.progress_bars import ProgressBar

TIMEOUT_LINE = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\("
    r"(?:SeqNum=(?P<number>\d{1,15}), )?OpType=(?P<kind>\w{1,40})(?:, NumelIn=(?P<size>\d{1,18}))?"
)
OPERATION_MEANINGS = {
    "_ALLGATHER_BASE": "the gathering of parameters under FSDP or ZeRO-3",
    "ALLGATHER_coalesced": "the gathering of parameters under FSDP or ZeRO-3",
    "_REDUCE_SCATTER_BASE": "the reduction of gradients under FSDP or ZeRO",
    "ALLREDUCE": "the mean of gradients (DDP) or of a figure, or a barrier",
    "ALLGATHER": "gather() of results",
    "BROADCAST": "weights, buffers or a decision of one rank that all are sent",
    "ALLTOALL_BASE": "tokens that go to experts or sequence parts on other ranks",
}
"""Names that ProcessGroupNCCL.cpp gives to operations, and who calls them in a training"""
MAX_RANKS = 1024
"""Chosen, not measured: it bounds the memory"""
MAX_NAMED_RANKS = 8
"""Ranks that a line of evidence names"""
MAX_QUOTED = 200
"""Characters of a line of the output that evidence quotes; chosen, not measured: a bar of tqdm has some 100"""


@dataclass(frozen=True, slots=True)
class PendingCollective:
    """The operation that a process waited in when its time ran out."""

    number: str
    kind: str
    size: str
    """Elements that the process gives"""

    def __str__(self) -> str:
        size = f" of {int(self.size):,} elements" if self.size else ""
        return f"{self.kind}{size}" + (f", number {self.number}" if self.number else "")


@dataclass(slots=True)
class CollectiveTimeoutReader:
    """Collects the operations, the first of each process."""

    _waiting: dict[int, PendingCollective] = field(default_factory=dict)
    _last: str = ""
    _before: str = ""
    _work: str = ""
    """A piece of work that a bar shows as begun and not ended"""
    _work_before: str = ""

    def add_line(self, text: str, process: str, *, is_printed: bool) -> None:
        """One line without its prefixes, and the process that they name; `is_printed` where the script itself printed
        it, and no logger."""
        match = TIMEOUT_LINE.search(text) if "Watchdog caught" in text else None
        if match is None:
            if is_printed and text.strip():
                self._last = text.strip()
                self._work = ""
            return
        # What was printed before the first time-out names the code that one rank ran alone. Later ones only follow.
        if not self._before:
            self._before = self._last[:MAX_QUOTED]
            self._work_before = self._work[:MAX_QUOTED]
        rank = int(process) if process.isdecimal() else -1
        if rank >= 0 and len(self._waiting) < MAX_RANKS:
            waiting = PendingCollective(match["number"] or "", match["kind"], match["size"] or "")
            self._waiting.setdefault(rank, waiting)

    def add_bar(self, text: str, bar: ProgressBar) -> None:
        """One drawing of a bar. One with a description is a piece of work of its own (`Map`), which one rank may do
        while the others wait; the bar of the training has none."""
        if not bar.is_described:
            return
        self._work = text.strip() if bar.done < bar.total else ""

    def finish(self) -> tuple[str, ...]:
        """What the processes waited in, as lines of evidence; none where nothing was printed of it."""
        if not self._waiting:
            return ()
        return tuple(self._lines())

    def _lines(self) -> Iterator[str]:
        """Who waited in what, who printed nothing, and what was printed before."""
        ranks_of: dict[PendingCollective, list[int]] = {}
        for rank, waiting in sorted(self._waiting.items()):
            ranks_of.setdefault(waiting, []).append(rank)
        for waiting, ranks in ranks_of.items():
            meaning = OPERATION_MEANINGS.get(waiting.kind)
            yield f"{_name_ranks(ranks)} waited in {waiting}" + (f": {meaning}" if meaning else "")
        # a rank that printed no time-out was not waiting: it is where to look
        missing = sorted(set(range(max(self._waiting) + 1)) - self._waiting.keys())
        if len(ranks_of) > 1:
            yield (
                "these operations differ: one rank runs code that the others don't (a save, an evaluation under"
                " `is_main_process` or `rank == 0`), or has another number of batches"
            )
        elif missing:
            yield f"{_name_ranks(missing)} printed no time-out: something else ran there, or the process had ended"
        if self._work_before:
            yield (
                f"under way when the time was over: {self._work_before}; the others waited for the rank that did it:"
                " do it once before the run (and save it), with more workers, or set a limit that is longer than it"
                " takes"
            )
        elif self._before:
            yield f"printed last before it: {self._before}"


def _name_ranks(ranks: list[int]) -> str:
    """`ranks 1, 2, 3`"""
    named = ", ".join(str(rank) for rank in ranks[:MAX_NAMED_RANKS])
    more = f" and {len(ranks) - MAX_NAMED_RANKS} more" if len(ranks) > MAX_NAMED_RANKS else ""
    return f"rank{'s' * (len(ranks) > 1)} {named}{more}"
