"""Makes fingerprints of findings: which places of two reports are the same, though lines have moved
between them.

A place is known by its rule, its file, and what stands there; not by its line or row number, which change when others
are added above, nor by other numbers, which may count rows. Places with the same contents are numbered: one more is
new.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from truetune.checks.findings import Case, Finding
from truetune.checks.reports import AnyReport
from truetune.checks.rule_families import former_code

NUMBER = re.compile(r"\d+")
# 64 bits: two of a million places are equal with a chance of 1 in 40 million (birthday bound n^2 / 2^65).
FINGERPRINT_DIGITS = 16
"""Hexadecimal digits of a place"""


def fingerprints_of_findings(
    findings: Iterable[Finding], code_of: Callable[[str], str] = str
) -> list[tuple[str, ...]]:
    """For each finding the fingerprints of its places; one of the whole if it has none.

    `code_of` gives the code that counts: `former_code` makes those of a baseline that was written
    before codes had letters.
    """
    seen = Counter[tuple[str, ...]]()
    return [
        tuple(_fingerprints_of_cases(finding, code_of(finding.code), seen)) for finding in findings
    ]


def _fingerprints_of_cases(
    finding: Finding, code: str, seen: Counter[tuple[str, ...]]
) -> Iterator[str]:
    """One hash for each place of a finding, or one of the finding if it has no places; `seen`
    numbers equal ones.
    """
    for parts in map(_stable_contents_of_case, finding.cases) if finding.cases else [("whole",)]:
        key = (code, *parts)
        # The count tells two equal places of one file apart: a third that is new is not taken for one of the two
        # known.
        seen[key] += 1
        yield hashlib.sha256(
            "\0".join((*key, str(seen[key]))).encode("utf-8", "surrogatepass")
        ).hexdigest()[:FINGERPRINT_DIGITS]


def _stable_contents_of_case(case: Case) -> tuple[str, ...]:
    """The parts of a place that stay the same when rows or lines are added elsewhere."""
    name = case.origin.file if case.origin else case.file or ""
    return (
        _relative_name(name),
        "" if case.turn is None else str(case.turn),
        case.side or "",
        # Counts and offsets change with every row that is added: with them each edit would make all findings new.
        NUMBER.sub("#", case.text),
    )


def _relative_name(name: str) -> str:
    """The path of a file below the working folder, as in a repository; of a file elsewhere its last
    two parts.
    """
    if "://" in name or not name:
        return name
    # abspath and not resolve: a link to a data set keeps the name that the user gave it.
    path = Path(os.path.abspath(name))
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        # Two parts: a home folder differs from machine to machine, the folder of a data set seldom does.
        return "/".join(path.parts[-2:])


def accept_known_findings(report: AnyReport, known: Collection[str]) -> AnyReport:
    """The report in which findings of an earlier one, by their fingerprints, do not fail: they are in its `known`.

    A finding with new places as well stays, with those alone.
    """
    fresh: list[Finding] = []
    old: list[Finding] = []
    current = fingerprints_of_findings(report.findings)
    former = fingerprints_of_findings(report.findings, former_code)
    for finding, prints, old_prints in zip(report.findings, current, former, strict=True):
        is_new = [
            one not in known and before not in known
            for one, before in zip(prints, old_prints, strict=True)
        ]
        if not any(is_new):
            old.append(finding)
        elif all(is_new):
            fresh.append(finding)
        else:
            cases = tuple(case for case, new in zip(finding.cases, is_new, strict=True) if new)
            evidence = f"{len(is_new) - len(cases):,} other places are in the baseline"
            fresh.append(
                replace(
                    finding, cases=cases, count=len(cases), evidence=(*finding.evidence, evidence)
                )
            )
    return replace(report, findings=tuple(fresh), known=tuple(old))
