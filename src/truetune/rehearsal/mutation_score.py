"""Scores a mutation test: which faults the user's own logs would have shown, and which truetune's rules see.

Each fault was put into the run's own batch and trained on. A log shows it where loss or a metric is far from the clean
run's. The trade-off: "far" is generous to the logs (they are compared with a clean run that nobody has), so the score
of truetune against them is rather too low than too high.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truetune.auditing.audit import Audit
from truetune.checks.rule_catalogue import all_rules
from truetune.checks.rule_runner import run_rules
from truetune.probe.run_record import Record

# Chosen, not measured: a loss that is three times another run's is looked at; at half, noise between runs would count.
SUSPICIOUS_LOSS_RATIO = 3.0
"""A final loss that is so many times the clean run's, and at least MIN_SUSPICIOUS_LOSS, would have been seen"""
MIN_SUSPICIOUS_LOSS = 0.3
"""The least final loss that would have been seen, in nats/token: of two losses near 0 the ratio
says nothing"""
# Chosen, not measured, as generous as the ratio of losses.
SUSPICIOUS_METRIC_SHARE = 0.5
"""A metric that is off by more than this share of the clean run's, and by MIN_METRIC_CHANGE, would have been seen"""
MIN_METRIC_CHANGE = 0.1
"""The least change of a metric that would have been seen: of a metric near 0 any change is a large
share"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault in the run's own batch, and what noticed it."""

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
class MutationTest:
    """The results of all faults that were tried, against the run without one."""

    loss: float
    """Of the last step without a fault"""
    steps: int
    mutants: tuple[Mutant, ...]
    skipped: tuple[tuple[str, str], ...]
    """Faults that were not tried, and why"""

    def describe_score(self) -> str:
        """The score over all faults, in a sentence."""
        visible = sum(bool(mutant.shown) for mutant in self.mutants)
        noticed = sum(bool(mutant.rules) for mutant in self.mutants)
        return (
            f"your logs would have shown {visible} of {len(self.mutants)} faults; truetune found"
            f" {noticed}"
        )


def mutation_test_of_first_process(records: Sequence[Record]) -> MutationTest | None:
    """The mutation test that the first process recorded; None where no faults were tried."""
    recorded: Mapping[str, Any] | None = records[0].facts.get("mutation")
    if not recorded:
        return None
    # Rules that the run breaks anyway found none of the faults.
    clean, clean_rules = (
        recorded["clean"],
        set(_rules_broken_by_recitation(records[0], records[0].facts["recitation"])),
    )
    return MutationTest(
        clean["loss"][-1],
        len(clean["loss"]),
        tuple(
            _find_what_noticed_fault(records[0], fault, clean, clean_rules)
            for fault in recorded["mutants"]
        ),
        tuple((skipped["name"], skipped["why"]) for skipped in recorded["skipped"]),
    )


def _find_what_noticed_fault(
    record: Record, fault: Mapping[str, Any], clean: Mapping[str, Any], clean_rules: set[str]
) -> Mutant:
    """One fault with what noticed it; rules that fire without a fault, too, noticed nothing."""
    rows, pairs = fault["rows"], fault.get("pairs", ())
    fired = _rules_broken_by_recitation(record, {**record.facts["recitation"], **fault})
    recited = sum(row["recited"] for row in rows)
    # Preference training recites nothing: a pair is learned where its margin grew.
    if pairs:
        recited = sum(pair["after"] > pair["before"] for pair in pairs)
    return Mutant(
        fault["name"],
        fault["what"],
        fault["loss"][-1],
        find_sign_of_fault_in_logs(fault, clean),
        recited,
        None if pairs else sum(row["stopped"] for row in rows),
        len(pairs or rows),
        tuple(name for name in fired if name not in clean_rules),
    )


def find_sign_of_fault_in_logs(fault: Mapping[str, Any], clean: Mapping[str, Any]) -> str:
    """What would have caught the eye in the logs of a run with this fault, if one knew the clean run's; else empty."""
    last, good = fault["loss"][-1], clean["loss"][-1]
    if not math.isfinite(last):
        return "loss is not a number"
    # All labels masked: nobody overlooks a loss of exactly 0.
    if last == 0:
        return "loss is 0"
    if last > SUSPICIOUS_LOSS_RATIO * good and last > MIN_SUSPICIOUS_LOSS:
        return "loss"
    # `not ... <=`, so that a metric that is missing (nan) counts as seen.
    logs = fault["logs"]
    return next(
        (
            name
            for name, value in clean["logs"].items()
            if not abs(logs.get(name, math.nan) - value)
            <= max(SUSPICIOUS_METRIC_SHARE * abs(value), MIN_METRIC_CHANGE)
        ),
        "",
    )


def _rules_broken_by_recitation(record: Record, recitation: Mapping[str, Any]) -> Iterator[str]:
    """Names of the rules on recitations that this one breaks."""
    subject = Audit(
        (Record({**record.facts, "recitation": dict(recitation)}),), (), None, frozenset()
    )
    for finding in run_rules(subject, all_rules("recitation")).findings:
        # An info is no alarm: who reads it need not suspect a fault.
        if finding.severity != "info":
            yield finding.rule
