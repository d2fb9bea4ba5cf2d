"""Puts the fixes of findings into a file, each proved to help before anything is written.

All fixes that do not overlap are tried together; where they do not help together, each is tried by itself. A fix helps
when the text still parses, its rule finds less in it, and no rule finds more. The price is a second run of the rules
for each try: a fix that breaks a script costs its user more than the wait.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from truetune.checks.findings import Edit, Finding
from truetune.data import write_atomically
from truetune.errors import DataError, UsageError
from truetune.source import make_source_edits
from truetune.source.parsed_source_file import Module, parse_module

MAX_PASSES = 8
"""Times that a file is fixed: a fix may uncover another.

Chosen, not measured: it only ends a circle of two fixes that undo each other; more than three were never seen.
"""


class LintResult(Protocol):
    """What the rules find in a text; `lint.FileResult` is one."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings of the text."""
        ...


@dataclass(frozen=True, slots=True)
class SourceChange:
    """What was fixed in one file, or would be."""

    path: str
    fixed: tuple[Finding, ...]
    before: Module
    after: Module

    @property
    def diff(self) -> str:
        """Unified, as `patch -p1` and `git apply` take it."""
        old, new = (
            text.splitlines(keepends=True) for text in (self.before.file_text, self.after.file_text)
        )
        lines = difflib.unified_diff(old, new, f"a/{self.path}", f"b/{self.path}")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


def fix_module(
    module: Module, findings: Sequence[Finding], look: Callable[[Module], LintResult], unsafe: bool
) -> SourceChange | None:
    """The module after all fixes that are allowed and that prove to help; None where there are none.

    A fix helps when the text still parses, the rule finds less in it, and no rule finds more.
    """
    after, done = module, list[Finding]()
    for _ in range(MAX_PASSES):
        fixable = [finding for finding in findings if _is_fixable(finding, module, unsafe)]
        step = _all_fixes_or_first_that_helps(after, findings, fixable, look)
        if step is None:
            break
        after, findings = step.after, step.findings
        done += step.fixed
    return SourceChange(module.path, tuple(done), module, after) if done else None


def _is_fixable(finding: Finding, module: Module, unsafe: bool) -> bool:
    """Has a finding a fix of this file that is allowed?"""
    fix = finding.fix
    return fix is not None and fix.file == module.path and (fix.safe or unsafe)


class _Step(NamedTuple):
    """Some fixes that helped."""

    after: Module
    findings: Sequence[Finding]
    """What the rules find afterwards"""
    fixed: list[Finding]


def _all_fixes_or_first_that_helps(
    module: Module,
    findings: Sequence[Finding],
    fixable: Sequence[Finding],
    look: Callable[[Module], LintResult],
) -> _Step | None:
    """All fixes together, or the first one that helps by itself; None where none does."""
    single = [[finding] for finding in fixable] if len(fixable) > 1 else []
    for batch in (fixable, *single):
        chosen = _keep_first_of_overlapping_fixes(batch)
        fixed = _apply_fixes(module, chosen) if chosen else None
        if fixed is None:
            continue
        left_over = look(fixed).findings
        if _do_rules_find_less_after_fix(findings, left_over, chosen):
            return _Step(fixed, left_over, chosen)
    return None


def _keep_first_of_overlapping_fixes(findings: Iterable[Finding]) -> list[Finding]:
    """Findings whose edits do not touch each other; of those that do, the first."""
    taken: list[Edit] = []
    chosen = []
    for finding in findings:
        own = finding.fix.edits if finding.fix else ()
        # Touching counts as overlapping: two insertions at one place have no order.
        if not any(a.start <= b.end and b.start <= a.end for a in own for b in taken):
            taken += own
            chosen.append(finding)
    return chosen


def _apply_fixes(module: Module, findings: Iterable[Finding]) -> Module | None:
    """The module with these fixes; None where they do not fit, or more of it can't be parsed then."""
    changes = [
        make_source_edits.Change(e.start, e.end, e.text)
        for f in findings
        if f.fix
        for e in f.fix.edits
    ]
    try:
        after = parse_module(
            make_source_edits.apply_changes(module.file_text, changes), module.path, module.codec
        )
    except (ValueError, DataError):
        return None
    return after if len(after.broken) <= len(module.broken) else None


def _do_rules_find_less_after_fix(
    before: Iterable[Finding], after: Iterable[Finding], fixed: Iterable[Finding]
) -> bool:
    """Does each rule that was fixed find less, and no rule more?"""
    old, new = Counter(f.code for f in before), Counter(f.code for f in after)
    return all(new[code] <= old[code] for code in new) and all(
        new[f.code] < old[f.code] for f in fixed
    )


def write_change(file: Path, change: SourceChange) -> None:
    """Put the fixed text in the place of the file; its encoding, line ends and rights stay.

    Raises UsageError where it can't be written, or was changed since it was read.
    """
    try:
        target = file.resolve()
        # An editor may have saved the file since it was read: its owner's change must not be lost.
        if target.read_bytes() != change.before.file_text.encode(change.before.codec):
            raise UsageError(
                f"{file}: was changed while it was looked at; nothing was written to it: run again"
            )
        mode = target.stat().st_mode
        write_atomically.write_atomically(target, change.after.file_text.encode(change.after.codec))
        target.chmod(mode)
    except (OSError, UnicodeEncodeError) as error:
        raise UsageError(f"{file}: can't be written ({error})") from None
