"""Reads which collective operations each process waited in, from what NCCL's watchdog prints at a
time-out.

Each process prints the operation that it waited in: its number, kind and size. Ranks whose operations differ do
different things: one of them runs code that the others don't (a save, an evaluation), or has other rows. The line
before the first time-out often names that code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from truetune.logs.console.parse_progress_bars import ProgressBar
from truetune.logs.console.uneven_counts_of_ranks import RankCountReader, RankCounts

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
GATHERS = frozenset(("_ALLGATHER_BASE", "ALLGATHER_coalesced", "ALLGATHER"))
DECISION = re.compile(
    r"\b(?:early[- ]?stop\w*|stopping|no improvement|patience|skip(?:ping|ped)?|nan\b|non-?finite|out of memory|oom|"
    r"time (?:limit|budget)|break(?:ing)?|exit(?:ing|s)?|done|finished)\b",
    re.I,
)
"""What a script prints where it leaves its loop or a step of it"""
# Chosen: a barrier reduces one element, a metric some; the smallest bucket of gradients has thousands.
MAX_FIGURES = 256
"""Elements up to which a reduction is one of figures"""
MAX_DIGITS = 7
"""Of a number of a process"""
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
    _is_over: bool = False
    """A time-out was printed: what follows tells of the end alone"""
    _work: str = ""
    """A piece of work that a bar shows as begun and not ended"""
    _work_before: str = ""
    _last_of: dict[int, str] = field(default_factory=dict)
    """The last line that each process printed under its own number, before the first time-out"""
    _counts: RankCountReader = field(default_factory=RankCountReader)

    def add_line(self, text: str, process: str, *, is_printed: bool) -> None:
        """Read one line without its prefixes, and the process that these name. `is_printed`: the
        script itself printed it, and no logger.
        """
        match = TIMEOUT_LINE.search(text) if "Watchdog caught" in text else None
        if match is None:
            if is_printed and text.strip():
                self._last = text.strip()
                self._work = ""
                self._keep_last_line_of_process(process)
                if not self._is_over:
                    self._counts.add_line(text, process)
            return
        # What was printed before the first time-out names the code that one rank ran alone. Later ones only follow.
        if not self._is_over:
            self._is_over = True
            self._before = self._last[:MAX_QUOTED]
            self._work_before = self._work[:MAX_QUOTED]
        rank = int(process) if process.isdecimal() else -1
        if rank >= 0 and len(self._waiting) < MAX_RANKS:
            waiting = PendingCollective(match["number"] or "", match["kind"], match["size"] or "")
            self._waiting.setdefault(rank, waiting)

    def _keep_last_line_of_process(self, process: str) -> None:
        """Keep the line as the last one that its process printed."""
        is_known = process.isdecimal() and len(process) < MAX_DIGITS
        if is_known and not self._is_over and len(self._last_of) < MAX_RANKS:
            self._last_of[int(process)] = self._last[:MAX_QUOTED]

    def add_bar(self, text: str, bar: ProgressBar) -> None:
        """Read one drawing of a bar. A bar with a description (`Map`) is work of its own, which one
        rank may do while the others wait; the bar of the training has none.
        """
        if not bar.is_described:
            return
        self._work = text.strip() if bar.done < bar.total else ""

    def finish(self) -> tuple[str, ...]:
        """What the processes waited in, as lines of evidence; empty if nothing was printed of it."""
        if not self._waiting:
            return ()
        return tuple(self._evidence_lines())

    def unequal_batch_counts(self) -> RankCounts | None:
        """The unequal numbers of batches that made the processes wait for one another; None if nothing printed
        proves it.

        The rank that has the fewest leaves the loop first: it waits in another operation than most, or in none.
        """
        counts = self._counts.finish() if self._waiting else None
        if counts is None or not counts.are_counts_of_batches_or_steps:
            return None
        if not self._ranks_in_other_operation_or_silent().intersection(counts.ranks_with_fewest):
            return None
        return counts

    def _ranks_in_other_operation_or_silent(self) -> set[int]:
        """Ranks that waited in another operation than most others, or that printed no time-out."""
        ranks_of = self._ranks_by_operation()
        most = max(ranks_of.values(), key=len)
        everyone = set(range(max(self._waiting) + 1)) | self._ranks_with_printed_count()
        return everyone - set(most)

    def _ranks_with_printed_count(self) -> set[int]:
        """Ranks that printed a count."""
        counts = self._counts.finish()
        return set(counts.of) if counts is not None else set()

    def _ranks_by_operation(self) -> dict[PendingCollective, list[int]]:
        """Operation -> the ranks that waited in it."""
        ranks_of: dict[PendingCollective, list[int]] = {}
        for rank, waiting in sorted(self._waiting.items()):
            ranks_of.setdefault(waiting, []).append(rank)
        return ranks_of

    def _evidence_lines(self) -> Iterator[str]:
        """Evidence: who waited in what, who printed nothing, and what was printed before."""
        ranks_of = self._ranks_by_operation()
        counts = self._counts.finish()
        uneven = self.unequal_batch_counts()
        if counts is not None:
            yield _describe_unequal_counts(counts, is_proved=uneven is not None)
        for waiting, ranks in ranks_of.items():
            meaning = _meaning_of_operation(waiting)
            yield f"{_ranks_as_text(ranks)} waited in {waiting}" + (
                f": {meaning}" if meaning else ""
            )
        # a rank that printed no time-out was not waiting: it is where to look
        missing = sorted(set(range(max(self._waiting) + 1)) - self._waiting.keys())
        if uneven is not None:
            yield from self._evidence_of_last_lines(
                sorted(self._ranks_in_other_operation_or_silent()), is_explained=True
            )
        elif len(ranks_of) > 1:
            yield (
                "these operations differ: one rank runs code that the others don't (a save, an evaluation under"
                " `is_main_process` or `rank == 0`, an early stop of its own), or has another number of batches"
            )
            yield from self._evidence_of_odd_ranks(ranks_of)
        elif missing:
            yield f"{_ranks_as_text(missing)} printed no time-out: something else ran there, or the process had ended"
            yield from self._evidence_of_last_lines(missing)
        if self._work_before:
            yield (
                f"under way when the time was over: {self._work_before}; the others waited for the rank that did it:"
                " do it once before the run (and save it), with more workers, or set a limit that is longer than it"
                " takes"
            )
        elif self._before and self._before not in self._last_of.values():
            yield f"printed last before it: {self._before}"

    def _evidence_of_odd_ranks(
        self, ranks_of: Mapping[PendingCollective, list[int]]
    ) -> Iterator[str]:
        """Which ranks do something else than most, how far apart they are, and what they printed."""
        most = max(ranks_of, key=lambda waiting: len(ranks_of[waiting]))
        for waiting, ranks in ranks_of.items():
            if waiting is most or len(ranks) >= len(ranks_of[most]):
                continue
            behind = _operations_behind(waiting, most)
            if behind:
                way = "behind" if behind > 0 else "ahead of"
                yield f"{_ranks_as_text(ranks)} {_was_or_were(ranks)} {abs(behind):,} operations {way} most others"
            else:
                yield f"{_ranks_as_text(ranks)} {_was_or_were(ranks)} at another place of the code than most others"
            yield from self._evidence_of_last_lines(ranks)

    def _evidence_of_last_lines(
        self, ranks: list[int], *, is_explained: bool = False
    ) -> Iterator[str]:
        """What these ranks printed last, where most others printed something else; decisions are named as such."""
        for rank in ranks[:MAX_NAMED_RANKS]:
            text = self._last_of.get(rank, "")
            is_shared = sum(other == text for other in self._last_of.values()) > 1
            if not text or is_shared:
                continue
            alone = (
                ": it left the loop or skipped a step by itself, and the others wait for it; all_reduce what decides"
                " this"
                if DECISION.search(text) and not is_explained
                else ""
            )
            yield f"rank {rank} printed last before it: {text}{alone}"


def _describe_unequal_counts(counts: RankCounts, *, is_proved: bool) -> str:
    """Unequal counts, as a line of evidence."""
    what = (
        "the rank with the fewest leaves the loop first, and the others wait for it"
        if is_proved
        else "where that makes other numbers of batches, the rank with the fewest leaves the loop first"
    )
    return f"the ranks have different numbers of {counts.unit}: {counts}; {what}"


def _meaning_of_operation(waiting: PendingCollective) -> str | None:
    """Which part of a training calls such an operation; None if it is not known."""
    if waiting.kind == "ALLREDUCE" and waiting.size:
        is_small = int(waiting.size) <= MAX_FIGURES
        return "a barrier, or the sum of figures" if is_small else "the mean of gradients (DDP)"
    if waiting.kind in GATHERS and waiting.size and int(waiting.size) <= MAX_FIGURES:
        # A gather of parameters has thousands of elements.
        return "a figure or result that is gathered from all (gather, gather_for_metrics)"
    return OPERATION_MEANINGS.get(waiting.kind)


def _operations_behind(one: PendingCollective, other: PendingCollective) -> int:
    """How many operations one rank is behind another; 0 if the numbers are the same, or not
    printed.
    """
    if not one.number or not other.number:
        return 0
    return int(other.number) - int(one.number)


def _was_or_were(ranks: list[int]) -> str:
    """The verb for one rank or several."""
    return "is" if len(ranks) == 1 else "are"


def _ranks_as_text(ranks: list[int]) -> str:
    """The ranks as text: `rank 1`, `ranks 1, 2, 3`."""
    named = ", ".join(str(rank) for rank in ranks[:MAX_NAMED_RANKS])
    more = f" and {len(ranks) - MAX_NAMED_RANKS} more" if len(ranks) > MAX_NAMED_RANKS else ""
    return f"rank{'s' * (len(ranks) > 1)} {named}{more}"
