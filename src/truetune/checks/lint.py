"""Lint: Python files and notebooks, past every rule of the source station and of the settings in them."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from truetune.checks.catalogue import choose
from truetune.checks.findings import Finding, in_order
from truetune.checks.judgement import Judgement, NotJudged, judge
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

LIBRARIES = frozenset({
    *("torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers", "unsloth", "axolotl"),
    *("llamafactory", "lightning", "pytorch_lightning", "torchtune", "deepspeed", "bitsandbytes", "vllm"),
    *("sentence_transformers", "evaluate", "setfit", "swift", "mlx_lm", "lm_eval", "keras", "tensorflow", "jax"),
})  # fmt: skip
"""Libraries of training, its data and its evaluation; code without one of them has nothing that a rule looks at"""
MEND_SYNTAX = "mend the syntax, or leave the file out"
UNPARSED = "source-not-parsed"


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
    judged: Judgement
    """With findings that are suppressed"""
    suppressed: int = 0
    applies: bool = True
    """Has a rule anything to look at in it?"""


def lint(
    paths: Iterable[str | PathLike[str]],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    fail_on: Severity = "error",
    allow_unjudged: bool = False,
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
    spec = RunSpec(select=tuple(select), ignore=tuple(ignore), fail_on=fail_on, allow_unjudged=allow_unjudged)
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
    judged = Judgement.of([*(seen.judged for seen in looks), *_beside_the_point(looks)])
    return LintReport(
        spec=spec,
        subjects=tuple(Subject(_kind(name), name, tuple(notes)) for name, notes in facts.items()),
        findings=in_order(finding for seen in looks for finding in seen.findings),
        examined=judged.examined,
        not_judged=judged.not_judged,
        seconds=time.perf_counter() - started,
        changes=tuple(changes),
        files=len(looks),
        suppressed=sum(seen.suppressed for seen in looks),
    )


def look_at(module: Module, spec: RunSpec) -> Look:
    """What the rules that `spec` selects find in one module, in the order of its text."""
    rules = [rule for rule in choose(spec.select, spec.ignore, "source") if issubclass(rule, SourceRule)]
    parts = [_of_this_file(judge(rules, module), module.path), _unparsed(module, spec)]
    try:
        parts += [of_settings(config, spec) for config in configs_of_source(module)]
    except SpecError as error:
        parts.append(Judgement(not_judged=(NotJudged("settings in the code", str(error), place=module.path),)))
    judged = Judgement.of(parts)
    applies = bool(judged.findings) or _trains(module)
    if not applies or (module.broken and not module.tree.body):
        judged = replace(judged, examined=())
    found = list(dict.fromkeys(judged.findings))
    comments = ignores(module)
    kept = [f for f in found if not any(c.covers(_offset(module, f), f.rule, f.code) for c in comments)]
    return Look(tuple(sorted(kept, key=lambda f: _offset(module, f))), judged, len(found) - len(kept), applies)


def _trains(module: Module) -> bool:
    """Does it use a library that the rules know the calls of?"""
    names = [alias.name for node in module.nodes(ast.Import) for alias in node.names]
    names += [node.module or "" for node in module.nodes(ast.ImportFrom)]
    used = any(name.partition(".")[0] in LIBRARIES for name in names)
    return used or any(module.methods("apply_chat_template"))


def _unparsed(module: Module, spec: RunSpec) -> Judgement:
    """What of a file no rule could look at; not asked for where the rule that reports it is left out by name."""
    asked = any(rule.name() == UNPARSED for rule in choose((), spec.ignore, "source"))
    return Judgement(
        not_judged=tuple(
            NotJudged(
                f"code of {module.path}",
                f"not parsed as Python: {broken.reason}",
                place=":".join(map(str, (module.path, *module.place_of_broken(broken)))),
                unlock=MEND_SYNTAX,
                asked=asked,
            )
            for broken in module.broken
        )
    )


def _beside_the_point(looks: Sequence[Look]) -> Iterator[Judgement]:
    """Files in which no rule has anything to look at: said, for they are no part of `no findings`."""
    count = sum(not seen.applies and not seen.judged.not_judged for seen in looks)
    if count:
        what = f"{count:,} of {len(looks):,} file{'s' * (len(looks) != 1)}"
        reason = "no code that trains: no library of training is imported"
        yield Judgement(not_judged=(NotJudged(what, reason, asked=False),))


def _of_this_file(judged: Judgement, path: str) -> Judgement:
    """What failed on this file names it."""
    named = (replace(part, reason=f"{path}: {part.reason}") if part.asked else part for part in judged.not_judged)
    return replace(judged, not_judged=tuple(named))


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
