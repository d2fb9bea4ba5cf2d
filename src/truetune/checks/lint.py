"""Lint: Python files and notebooks, past every rule of the source station and of the settings in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from truetune.checks.catalogue import choose
from truetune.checks.findings import Finding, in_order
from truetune.checks.mend import Change, mended, write
from truetune.checks.report import Report, Subject
from truetune.checks.rule import SourceRule
from truetune.checks.settings import of_settings
from truetune.errors import DataError, SpecError
from truetune.source.config import configs_of_source
from truetune.source.module import Module, nothing, read
from truetune.source.suppress import ignores
from truetune.source.walk import sources
from truetune.spec.run import RunSpec, Severity


@dataclass(frozen=True, kw_only=True, repr=False)
class LintReport(Report):
    """What is wrong in sources, after what was mended."""

    changes: tuple[Change, ...] = ()
    """What was mended; with `diff`, what would be"""
    files: int
    suppressed: int
    """Findings that a comment `# truetune: ignore` keeps quiet"""


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to say on one module."""

    findings: tuple[Finding, ...]
    suppressed: int = 0
    notes: tuple[str, ...] = ()


def lint(
    paths: Iterable[str | PathLike[str]],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    fail_on: Severity = "error",
    fix: bool = False,
    unsafe: bool = False,
    diff: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> LintReport:
    """Look at Python files and notebooks, and at those in folders.

    `fix` mends with the safe fixes, `unsafe` with the others too; with `diff` nothing is written. `progress` is called
    with the number of files that are read and of all. Raises UsageError for a path that is not there, or a file that
    can't be written.
    """
    started = time.perf_counter()
    spec = RunSpec(select=tuple(select), ignore=tuple(ignore), fail_on=fail_on)
    named = list(map(str, paths))
    looks: list[Look] = []
    changes: list[Change] = []
    facts: dict[str, list[tuple[str, str]]] = {name: [] for name in named}
    files = list(sources(named))
    for number, (name, file) in enumerate(files):
        if progress is not None:
            progress(number, len(files))
        module = _module(file)
        seen = look_at(module, spec)
        linked = file.is_symlink() and str(file) not in named
        if linked and fix:
            facts[name].append(("note", f"{file}: not changed, for it is a link; name the file itself"))
        if (
            (fix or unsafe or diff)
            and not linked
            and (change := mended(module, seen.findings, lambda m: look_at(m, spec), unsafe))
        ):
            changes.append(change)
            if not diff:
                write(file, change)
                seen = look_at(change.after, spec)
        looks.append(seen)
        facts[name] += [("note", f"{file}: {note}") for note in seen.notes]
    return LintReport(
        spec=spec,
        subjects=tuple(Subject(_kind(name), name, tuple(notes)) for name, notes in facts.items()),
        findings=in_order(finding for seen in looks for finding in seen.findings),
        seconds=time.perf_counter() - started,
        changes=tuple(changes),
        files=len(looks),
        suppressed=sum(seen.suppressed for seen in looks),
    )


def look_at(module: Module, spec: RunSpec) -> Look:
    """What the rules that `spec` selects find in one module, in the order of its text."""
    found: list[Finding] = []
    notes: list[str] = []
    for rule in choose(spec.select, spec.ignore, "source"):
        if issubclass(rule, SourceRule):
            try:
                found += rule(module).findings()
            except RecursionError:
                notes.append(f"{rule.name()} did not come to an end: the code is nested too deeply")
    try:
        for config in configs_of_source(module):
            found += of_settings(config, spec)
    except SpecError as error:
        notes.append(f"its settings are not looked at: {error}")
    found = list(dict.fromkeys(found))
    comments = ignores(module)
    kept = [f for f in found if not any(c.covers(_offset(module, f), f.rule, f.code) for c in comments)]
    return Look(tuple(sorted(kept, key=lambda f: _offset(module, f))), len(found) - len(kept), tuple(notes))


def _offset(module: Module, finding: Finding) -> int:
    """Where in the file the first case of a finding is, in characters."""
    case = next(iter(finding.cases), None)
    if case is None or case.line is None or case.file != module.path:
        return 0
    lines = module.file_lines
    return lines.starts[min(case.line, len(lines)) - 1] + (case.column or 1) - 1


def _module(file: Path) -> Module:
    try:
        return read(file)
    except DataError as error:
        return nothing(str(file), str(error).removeprefix(f"{file}: "))


def _kind(name: str) -> str:
    path = Path(name)
    return "folder of Python sources" if path.is_dir() else "notebook" if path.suffix == ".ipynb" else "Python source"
