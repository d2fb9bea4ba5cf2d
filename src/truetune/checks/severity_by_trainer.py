"""Adjusts the severity of findings to the trainer that will read the rows.

A rule gives each finding the severity that it has where the trainer is hurt by it, and names the facts that it depends
on. Here the trainer's own value of each such fact caps that severity, or makes the finding moot, and adds the reason to
its evidence. A rule never asks for a trainer's name, so a trainer that is added to the table needs no change of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from truetune.checks.findings import RANK, Finding
from truetune.settings.run_spec import Severity
from truetune.trainers.trainer_fact_types import TrainerFacts


class SeverityForFact(NamedTuple):
    """What a finding is worth under one value of a fact."""

    at_most: Severity | None
    """None: it says nothing of a run by such a trainer, and is left out"""
    because: str = ""
    """Added to the evidence; `{trainer}` is its name"""
    holds_for_all: bool = True
    """Also where the finding is about nearly everything that there is; else it keeps the severity of the rule there"""


MOOT = SeverityForFact(None)


@dataclass(frozen=True, slots=True)
class SeverityByFact:
    """The severity by one fact of the trainer."""

    fact: str
    """Field of TrainerFacts; of a record in it with a dot: `cut.action`"""
    judged: Mapping[Any, SeverityForFact]
    """By the fact's value; a finding stays as it is under a value that is not here. None: the trainer is not known"""

    def severity_for_trainer(self, trainer: TrainerFacts) -> SeverityForFact | None:
        """The severity that a finding has under a trainer by this fact; None if the rule's own
        counts.
        """
        name, _, part = self.fact.partition(".")
        value = getattr(trainer, name).value
        if part:
            value = getattr(value, part) if trainer.name is not None else None
        return self.judged.get(value)


CUT_ACTIONS = SeverityByFact(
    "cut.action",
    {
        "none": MOOT,
        "count": MOOT,
        "drop": SeverityForFact(
            "warning",
            "{trainer} leaves such rows out whole: their answers are not cut, and not learned",
            holds_for_all=False,
        ),
    },
)
"""What becomes of a finding on answers that a limit cuts"""


# Chosen, not measured. At half, a run that keeps half of its rows would be called spoiled; at 0.99 one that keeps a
# hundredth would not.
NEARLY_ALL = 0.9
"""Of the rows: what is left is a tenth of the run that was meant, at most"""


def is_nearly_all(count: int | None, total: int | None) -> bool:
    """Are so many of all rows concerned that the run as a whole is spoiled?"""
    return count is not None and total is not None and 0 < NEARLY_ALL * total <= count


def adjust_severities_to_trainer(
    findings: Iterable[Finding], by: Iterable[SeverityByFact], trainer: TrainerFacts
) -> Iterator[Finding]:
    """The findings of a rule as they hold under a trainer."""
    by_fact = (fact.severity_for_trainer(trainer) for fact in by)
    verdicts = [verdict for verdict in by_fact if verdict is not None]
    if MOOT.at_most in [verdict.at_most for verdict in verdicts]:
        return
    for finding in findings:
        # The worst that the trainer allows: it may lower what the rule says, and never raises it.
        severity, evidence = finding.severity, list(finding.evidence)
        for verdict in verdicts:
            if verdict.holds_for_all or not is_nearly_all(finding.count, finding.total):
                severity = min(severity, verdict.at_most or severity, key=RANK.__getitem__)
            if verdict.because:
                evidence.append(_reason_in_trainer(verdict.because, trainer))
        yield replace(finding, severity=severity, evidence=tuple(evidence))


def _reason_in_trainer(because: str, trainer: TrainerFacts) -> str:
    """The reason of a severity as the trainer's behaviour; of another release than the recorded
    one, that it is not tested.
    """
    said = because.format(trainer=trainer.name_in_reports)
    return f"{said}; that {trainer.pinned} does so is not tested" if trainer.pinned else said
