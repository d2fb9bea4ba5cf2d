"""Mutation score: which faults the user's own logs would have shown, and which truetune's rules see."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truetune.auditing.audit import Audit
from truetune.checks.catalogue import rules
from truetune.checks.judgement import judge
from truetune.probe.run_record import Record

TIMES = 3.0
"""A final loss that is so many times the clean run's, and at least `LEAST`, would have been seen"""
LEAST = 0.3
SHARE = 0.5
"""A metric that is off by more than this share of the clean run's, and by `OFF`, would have been seen"""
OFF = 0.1


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault in the run's own batch, and who noticed."""

    name: str
    what: str
    loss: float
    """Of the last step"""
    shown: str
    """What in the user's logs shows it; empty where nothing does"""
    recited: int
    """Answers; for pairs, those whose margin grew"""
    stopped: int | None
    """None for pairs"""
    total: int
    rules: tuple[str, ...]
    """Of truetune's rules on recitations, those that fire and did not without the fault"""


@dataclass(frozen=True, slots=True)
class Mutation:
    """All faults that were tried, against the run without one."""

    loss: float
    """Of the last step without a fault"""
    steps: int
    mutants: tuple[Mutant, ...]
    skipped: tuple[tuple[str, str], ...]
    """Faults that were not tried, and why"""

    def sentence(self) -> str:
        """The score."""
        shown, found = (
            sum(bool(m) for m in seen)
            for seen in ([m.shown for m in self.mutants], [m.rules for m in self.mutants])
        )
        return (
            f"your logs would have shown {shown} of {len(self.mutants)} faults; truetune found"
            f" {found}"
        )


def mutation(records: Sequence[Record]) -> Mutation | None:
    """What the first process recorded; None where no faults were tried."""
    found: Mapping[str, Any] | None = records[0].facts.get("mutation")
    if not found:
        return None
    clean, usual = found["clean"], set(_fired(records[0], records[0].facts["recitation"]))
    return Mutation(
        clean["loss"][-1],
        len(clean["loss"]),
        tuple(_mutant(records[0], fault, clean, usual) for fault in found["mutants"]),
        tuple((skipped["name"], skipped["why"]) for skipped in found["skipped"]),
    )


def _mutant(
    record: Record, fault: Mapping[str, Any], clean: Mapping[str, Any], usual: set[str]
) -> Mutant:
    rows, pairs = fault["rows"], fault.get("pairs", ())
    fired = _fired(record, {**record.facts["recitation"], **fault})
    return Mutant(
        fault["name"],
        fault["what"],
        fault["loss"][-1],
        shown(fault, clean),
        (
            sum(pair["after"] > pair["before"] for pair in pairs)
            if pairs
            else sum(row["recited"] for row in rows)
        ),
        None if pairs else sum(row["stopped"] for row in rows),
        len(pairs or rows),
        tuple(name for name in fired if name not in usual),
    )


def shown(fault: Mapping[str, Any], clean: Mapping[str, Any]) -> str:
    """What would have caught the eye in the logs of a run with this fault, if one knew the clean run's; else empty."""
    last, good = fault["loss"][-1], clean["loss"][-1]
    if not math.isfinite(last):
        return "loss is no number"
    if last == 0:
        return "loss is 0"
    if last > TIMES * good and last > LEAST:
        return "loss"
    logs = fault["logs"]
    return next(
        (
            name
            for name, value in clean["logs"].items()
            if not abs(logs.get(name, math.nan) - value) <= max(SHARE * abs(value), OFF)
        ),
        "",
    )


def _fired(record: Record, recitation: Mapping[str, Any]) -> Iterator[str]:
    """Names of the rules on recitations that this one breaks."""
    subject = Audit(
        (Record({**record.facts, "recitation": dict(recitation)}),), (), None, frozenset()
    )
    for finding in judge(rules("recitation"), subject).findings:
        if finding.severity != "info":
            yield finding.rule
