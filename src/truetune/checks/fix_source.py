"""Mending: fixes of findings put into a file, each proved to help before anything is written."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from truetune.checks.findings import Edit, Finding
from truetune.data import atomic
from truetune.errors import DataError, UsageError
from truetune.source import edits
from truetune.source.module import Module, parse

MAX_PASSES = 8
"""Times that a file is mended: a fix may uncover another."""


class LintResult(Protocol):
    @property
    def findings(self) -> tuple[Finding, ...]: ...


@dataclass(frozen=True, slots=True)
class SourceChange:
    """What was mended in one file, or would be."""

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
    after, done = module, []
    for _ in range(MAX_PASSES):
        fixable = [
            f
            for f in findings
            if f.fix is not None and f.fix.file == module.path and (f.fix.safe or unsafe)
        ]
        mended_now = False
        for batch in (fixable, *([f] for f in fixable[: len(fixable) * (len(fixable) > 1)])):
            chosen = _without_overlaps(batch)
            if not chosen:
                continue
            tried = _apply_fixes(after, chosen)
            seen = look(tried).findings if tried is not None else ()
            if tried is not None and _is_improvement(findings, seen, chosen):
                after, findings, mended_now = tried, seen, True
                done += chosen
                break
        if not mended_now:
            break
    return SourceChange(module.path, tuple(done), module, after) if done else None


def _without_overlaps(findings: Iterable[Finding]) -> list[Finding]:
    """Findings whose edits do not touch each other; of those that do, the first."""
    taken: list[Edit] = []
    chosen = []
    for finding in findings:
        own = finding.fix.edits if finding.fix else ()
        if not any(a.start <= b.end and b.start <= a.end for a in own for b in taken):
            taken += own
            chosen.append(finding)
    return chosen


def _apply_fixes(module: Module, findings: Iterable[Finding]) -> Module | None:
    changes = [edits.Change(e.start, e.end, e.text) for f in findings if f.fix for e in f.fix.edits]
    try:
        after = parse(edits.apply(module.file_text, changes), module.path, module.codec)
    except (ValueError, DataError):
        return None
    return after if len(after.broken) <= len(module.broken) else None


def _is_improvement(
    before: Iterable[Finding], after: Iterable[Finding], mended: Iterable[Finding]
) -> bool:
    """Does each rule that was mended find less, and no rule more?"""
    old, new = Counter(f.code for f in before), Counter(f.code for f in after)
    return all(new[code] <= old[code] for code in new) and all(
        new[f.code] < old[f.code] for f in mended
    )


def write_change(file: Path, change: SourceChange) -> None:
    """Put the mended text in the place of the file; its encoding, line ends and rights stay.

    Raises UsageError where it can't be written, or was changed since it was read.
    """
    try:
        target = file.resolve()
        if target.read_bytes() != change.before.file_text.encode(change.before.codec):
            raise UsageError(
                f"{file}: was changed while it was looked at; nothing was written to it: run again"
            )
        mode = target.stat().st_mode
        atomic.write_atomically(target, change.after.file_text.encode(change.after.codec))
        target.chmod(mode)
    except (OSError, UnicodeEncodeError) as error:
        raise UsageError(f"{file}: can't be written ({error})") from None
