"""Counts how often each training record is in one output, because several trainings write into it
at the same time.

A trainer prints each record once, on its main process. Where each record is there four times, one right after the
other, four processes print, each of which takes itself for the main one. Their values are nearly the same (one seed,
the same rows) and differ in the last digits, which those of one run cannot: there each process prints the same mean.

The trade-off: losses of the ranks' own rows differ as much as those of other batches do, so that they are never taken
for several trainings; nor are records that are equal in all digits, which two handlers of one process print.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

PLACES = ("step", "global_step", "iteration", "iter", "learning_rate", "lr", "num_tokens", "epoch")
"""What says which record of the training it is"""
SURE_PLACES = frozenset(PLACES) - {"epoch"}
"""The epoch is rounded: records that follow one another share it"""
ROWS_A_STEP = re.compile(r"Total train batch size[^=]{0,80}= ?([\d,]{1,12})")
ROWS_ON_A_GPU = re.compile(r"Instantaneous batch size per device ?= ?([\d,]{1,12})")
ACCUMULATION = re.compile(r"Gradient Accumulation steps ?= ?([\d,]{1,12})")
IS_ALONE = re.compile(
    r"distributed training: ?False|Distributed environment: (?:DistributedType\.)?NO\b|Num processes: 1\b"
    r"|\b[Ww]orld[ _-]?[Ss]ize ?[:=]? ?1\b|\bworld[:= ] ?1\b|Num GPUs used = 1\b"
)
"""What a process prints that sees no other one"""
MAX_KEPT = 4_000
"""Records of one output that are compared; what follows is like them"""
MIN_RECORDS = 5
"""Records that stand there as often as the others. Chosen, not measured: fewer may be chance"""
MOST = 0.8
"""Share of the records that stand there equally often; the last ones may be cut off"""
MAX_DRIFT = 4
"""Records by which one training may be ahead of another. Chosen, not measured: a run that is started again repeats
its records after all of the first"""
NEAR = 0.25
"""Of what the loss differs by from record to record. Copies of one seed measured 0.01, rows of their own about 1"""


class RepeatedRecords(NamedTuple):
    """How often each record of the training stands in the output."""

    copies: int = 1
    records: int = 0
    """Different ones"""
    are_other: bool = False
    """Do copies differ in any of their figures? Those that one process prints twice do not"""
    are_near: bool = False
    """Do most differ in their loss, by far less than one record does from the next?"""
    alone: int = 0
    """Processes that print that they are the only one, before the first record"""
    line: int = 0
    text: str = ""
    """What such a process prints"""
    losses: tuple[float, ...] = ()
    """Of one record, in its copies"""


@dataclass(slots=True)
class _Copies:
    """The copies of one record."""

    first: int
    """Records before it, different ones"""
    last: int
    losses: list[float] = field(default_factory=list)
    figures: set[str] = field(default_factory=set)
    """All figures of each copy; at most two kinds are kept"""


@dataclass(slots=True)
class RepeatedRecordReader:
    """Takes the lines and the records of one output."""

    _seen: dict[tuple[Any, ...], _Copies] = field(default_factory=dict)
    _counts: dict[str, Counter[int]] = field(default_factory=dict)
    _alone: Counter[str] = field(default_factory=Counter)
    _first: tuple[int, str] = (0, "")

    def add_line(self, text: str, number: int) -> None:
        """Read one line before the first record; what is printed later says nothing of the start."""
        if self._seen:
            return
        alone = IS_ALONE.search(text)
        if alone is not None:
            # One process may say it in two ways: only what is said in one way is said by several.
            self._alone[alone[0]] += 1
            self._keep_first_sign_of_single_process(text, number)
        for name, pattern in (
            ("total", ROWS_A_STEP),
            ("each", ROWS_ON_A_GPU),
            ("accumulated", ACCUMULATION),
        ):
            match = pattern.search(text)
            if match is not None:
                value = int(match[1].replace(",", "") or 0)
                self._counts.setdefault(name, Counter())[value] += 1
                if name == "total":
                    self._keep_first_sign_of_single_process(text, number)

    def _keep_first_sign_of_single_process(self, text: str, number: int) -> None:
        """Keep the first line that shows a process which counts itself alone."""
        if not self._first[0]:
            self._first = (number, text.strip()[:200])

    def add_record(self, record: Mapping[str, Any]) -> None:
        """Read one record of the training, a new one or a copy of the last."""
        place = tuple((name, str(record[name])) for name in PLACES if name in record)
        loss = record.get("loss")
        if not SURE_PLACES & {name for name, _ in place} or loss is None:
            return
        try:
            value = float(loss)
        except (TypeError, ValueError):
            return
        now = len(self._seen)
        copies = self._seen.get(place)
        if copies is None:
            if now >= MAX_KEPT:
                return
            copies = self._seen[place] = _Copies(now, now)
        copies.last = now
        copies.losses.append(value)
        if len(copies.figures) < 2:
            copies.figures.add(repr(sorted((name, str(one)) for name, one in record.items())))

    def finish(self) -> RepeatedRecords:
        """The number of copies; 1 if records are there once, or are repeated by a run that was
        started again.
        """
        records = list(self._seen.values())
        counts = Counter(len(one.losses) for one in records)
        if len(records) < MIN_RECORDS:
            return RepeatedRecords()
        copies, often = counts.most_common(1)[0]
        drift = median(one.last - one.first for one in records)
        if copies < 2 or often < MOST * len(records) or drift > MAX_DRIFT:
            return RepeatedRecords()
        line, text = self._first
        same = [one for one in records if len(one.losses) == copies]
        return RepeatedRecords(
            copies,
            len(records),
            any(len(one.figures) > 1 for one in same),
            _are_near_copies(same),
            max([self._processes_that_count_themselves_alone(), *self._alone.values()]),
            line,
            text,
            tuple(same[len(same) // 2].losses),
        )

    def _processes_that_count_themselves_alone(self) -> int:
        """The number of processes whose printed step has only as many rows as one GPU takes with
        accumulation.
        """
        found = [self._counts.get(name, Counter()) for name in ("total", "each", "accumulated")]
        if any(len(one) != 1 for one in found):
            return 0
        (total, often), (each, _), (accumulated, _) = (one.most_common(1)[0] for one in found)
        return often if total == each * accumulated else 0


def _are_near_copies(records: list[_Copies]) -> bool:
    """Do copies differ, and far less than records that follow one another?"""
    within = [max(one.losses) - min(one.losses) for one in records]
    means = [sum(one.losses) / len(one.losses) for one in records]
    between = [abs(late - early) for early, late in pairwise(means)]
    are_other = sum(one > 0 for one in within) * 2 >= len(within)
    return are_other and bool(between) and median(within) <= NEAR * median(between)
