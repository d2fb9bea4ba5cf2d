"""Finds numbers of batches, steps or rows that the processes of a run print, and that are not
equal.

Under data parallelism every step is a meeting of all processes. Where one has fewer batches, it leaves the loop first,
and the others wait for it until NCCL's time is over. Scripts print these numbers once, before the loop, each process
its own: lines that differ in their numbers alone are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from truetune.logs.console.skips_and_errors_of_one_rank import DIGITS, RANK_IN_TEXT

BATCHES = r"(?:(?:micro|mini)[_-]?)?batch(?:es)?|steps(?:_per_epoch)?|iterations|iters"
ROWS = (
    r"rows|examples|samples|items|sequences|documents|instances|records|conversations|chunks|blocks"
)
NUMBER = r"\d{1,3}(?:,\d{3}){1,4}|\d{1,12}"
COUNT_BEFORE = re.compile(
    rf"(?<![\w./])(?P<number>{NUMBER}) (?:\w{{1,12}} )?(?P<unit>{BATCHES}|{ROWS})\b", re.I
)
"""`1502 batches`, `12,022 training examples`"""
COUNT_BEHIND = re.compile(
    rf"(?:\b|_)(?P<unit>{BATCHES}|{ROWS}|(?:data)?loader|dataset)\)?(?:\s(?:per epoch|total))?\s{{0,3}}[:=]\s{{0,3}}"
    rf"(?P<number>{NUMBER})(?![\d.,/]*\d)",
    re.I,
)
"""`num_batches=1502`, `len(loader): 1502`, `steps per epoch: 188`"""
IS_BATCHES = re.compile(rf"{BATCHES}|(?:data)?loader", re.I)
MEASURES = re.compile(r"\bloss\b|/s\b|tok/|\blr\b|\bgrad|eta\b", re.I)
"""A line on the way, and no count of what there is"""
MAX_TEMPLATES, MAX_RANKS, MAX_QUOTED = 200, 1024, 200
"""Chosen, not measured: they bound the memory"""
# Chosen: a count is printed once, or once an epoch; progress comes often, and at another place of each process.
MAX_PRINTS = 4
MAX_NAMED_RANKS = 8
"""Ranks up to which each is named with its count. Chosen by hand: the GPUs of one machine fit on a
line; more ranks would not"""


@dataclass(frozen=True, slots=True)
class RankCounts:
    """What the processes have of one unit, which is not the same for all."""

    unit: str
    """`batches`, `examples`"""
    of: Mapping[int, int]
    """Rank -> number"""

    @property
    def are_counts_of_batches_or_steps(self) -> bool:
        """Are they numbers of batches or steps, and not of rows? Unequal rows may still make equal
        numbers of batches.
        """
        return IS_BATCHES.fullmatch(self.unit) is not None

    @property
    def ranks_with_fewest(self) -> list[int]:
        """The ranks that have the fewest."""
        least = min(self.of.values())
        return [rank for rank, number in self.of.items() if number == least]

    def __str__(self) -> str:
        named = sorted(self.of.items())
        # Of many ranks the two ends are what matters.
        if len(named) > MAX_NAMED_RANKS:
            by_number = sorted(named, key=lambda one: one[1])
            named = [by_number[0], by_number[-1]]
        return ", ".join(f"rank {rank} has {number:,}" for rank, number in named)


@dataclass(slots=True)
class _Template:
    """Lines that differ in their numbers alone."""

    first: dict[int, dict[str, int]] = field(default_factory=dict)
    """Rank -> the counts of its first such line, by unit"""
    prints: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class RankCountReader:
    """Collects such lines."""

    _templates: dict[str, _Template] = field(default_factory=dict)

    def add_line(self, text: str, process: str) -> None:
        """Read one line without its prefixes, and the process that these name."""
        if len(text) > MAX_QUOTED or MEASURES.search(text):
            return
        counts = dict(_counts_with_unit(text))
        named = RANK_IN_TEXT.search(text) if counts else None
        rank = process if process.isdecimal() else named["rank"] if named else ""
        if not counts or not rank or len(rank) > len(str(MAX_RANKS)):
            return
        key = DIGITS.sub("0", text.strip().replace(",", ""))
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= MAX_TEMPLATES:
                return
            template = self._templates[key] = _Template()
        number = int(rank)
        template.first.setdefault(number, counts)
        template.prints[number] = template.prints.get(number, 0) + 1

    def finish(self) -> RankCounts | None:
        """The first count that differs between processes, batches before rows; None if all are
        equal.
        """
        uneven = list(self._uneven_counts())
        return next(
            (one for one in uneven if one.are_counts_of_batches_or_steps),
            uneven[0] if uneven else None,
        )

    def _uneven_counts(self) -> Iterator[RankCounts]:
        """Counts of several processes that are not equal."""
        for template in self._templates.values():
            if len(template.first) < 2 or max(template.prints.values()) > MAX_PRINTS:
                continue
            units = next(iter(template.first.values()))
            for unit in units:
                of = {
                    rank: counts[unit] for rank, counts in template.first.items() if unit in counts
                }
                if len(of) == len(template.first) and len(set(of.values())) > 1:
                    yield RankCounts(unit, of)


def _counts_with_unit(text: str) -> Iterator[tuple[str, int]]:
    """(unit, number) of each count in a line, in order."""
    for pattern in (COUNT_BEFORE, COUNT_BEHIND):
        for match in pattern.finditer(text):
            yield match["unit"].lower(), int(match["number"].replace(",", ""))
