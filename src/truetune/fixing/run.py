"""`truetune fix`: one file of rows in, the same with its mechanical faults fixed out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from truetune.checks.catalogue import DATA, choose, find
from truetune.checks.check_data import Progress, prepare
from truetune.checks.findings import Finding
from truetune.checks.judgement import Judgement, NotJudged, missing
from truetune.checks.rule import DataRule, Setup
from truetune.checks.rule_runner import conclude_rule, describe_failure
from truetune.data.atomic import PartialFile
from truetune.data.conversation import Origin
from truetune.data.files import COMPRESSION_SUFFIXES, Source, find_sources, open_raw
from truetune.data.remote import Remote
from truetune.data.rows import read_conversations
from truetune.encoding.fingerprint import Fingerprints
from truetune.encoding.stream import with_proof
from truetune.errors import DataError, TruetuneError, UsageError
from truetune.fixing.catalogue import remedies
from truetune.fixing.diff import LineDiff
from truetune.fixing.fixer import Fixer, FixRow, Undone
from truetune.fixing.judged import Judge, Judged
from truetune.fixing.outputs import ChangeLog, changes_path, check_outputs, check_same_kind, packing
from truetune.fixing.remedy import Context, ProblemRemedy, Remedy, problems_of
from truetune.fixing.tables import fix_table, table_writer
from truetune.fixing.text_files import fix_text
from truetune.parsing.decompression import BROKEN_STREAM
from truetune.spec.run import RunSpec

TABLES = ("parquet", "arrow")
BROKEN = "malformed-rows"
"""The rule that lines which hold no row belong to"""
NO_ROW = "drop lines that hold no row"
NAME_TOKENIZER = "name a tokenizer with -t"


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a person has to look at."""

    rule: str
    message: str
    rows: int
    first: str
    """Where the first is"""
    why: str
    """Why it was not fixed, and what would"""


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """What was done to a file, or would be."""

    data: str
    output: str | None
    """None where nothing was to be written"""
    rows: int
    changed_rows: int
    dropped_rows: int
    changed: dict[tuple[str, str], int]
    """(rule, what was done) -> rows"""
    left: tuple[Left, ...]
    offered: dict[tuple[str, str], int]
    """(rule, what `--unsafe` would do) -> rows"""
    judged_with_tokenizer: bool
    waiting_for_tokenizer: tuple[str, ...]
    """Rules that are not looked at without a tokenizer"""
    findings: tuple[Finding, ...] = field(repr=False)
    """Of the rules that have remedies, after all edits"""
    not_judged: tuple[NotJudged, ...] = ()
    """What was asked for and could not be judged, and why"""
    diff: str | None = field(default=None, repr=False)
    """The unified diff, where one was asked for; nothing was written then"""
    allow_unjudged: bool = False
    """Is it no failure that something was not judged?"""

    @property
    def changes(self) -> str | None:
        """The record of changes."""
        return None if self.output is None else str(changes_path(Path(self.output)))

    def failed(self) -> bool:
        """Is something left for a person?"""
        return bool(self.left)

    def exit_code(self) -> int:
        """1 where something is left for a person, or a diff shows changes; 3 where something that was asked for could
        not be judged; else 0."""
        if self.failed() or (self.diff is not None and self.changed):
            return 1
        return 3 if self.not_judged and not self.allow_unjudged else 0


def fix(
    spec: RunSpec,
    output: str | None,
    *,
    unsafe: bool = False,
    diff: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Fixed:
    """Fix the rows of the one file that `spec` names, as far as rules have remedies that `spec` selects.

    Args:
        spec: data, tokenizer, and how rows are read; without a tokenizer, only what the reader sees is fixed.
        output: the file that is written, and beside it the record of changes; None writes nothing.
        unsafe: make those edits too that may change what rows mean, and drop rows.
        diff: takes the hunks of a unified diff; nothing is written then. The result has the whole of it.
        progress: told rows done, bytes read, and bytes in all.

    Raises UsageError, SpecError, TokenizerError, TemplateError, or DataError where the file can't be read.
    """
    source = _source(spec)
    chosen = _chosen(spec)
    target = Path(output) if output is not None and diff is None else None
    if target is not None:
        check_same_kind(Path(str(source.path)), target)
        check_outputs(target, _inputs(spec))
    try:
        return with_proof(
            lambda only_reference: _Run(
                spec,
                source,
                chosen,
                target,
                unsafe=unsafe,
                diff=diff,
                progress=progress,
                only_reference=only_reference,
            )()
        )
    except BROKEN_STREAM as error:
        raise DataError(f"{source.path}: {error}; is the file whole?") from None


def _source(spec: RunSpec) -> Source:
    """The one file. Raises DataError, UsageError."""
    found = find_sources(spec.data)
    if len(found) != 1:
        raise UsageError(
            f"{', '.join(spec.data)}: {len(found):,} files; fix takes one at a time: name one of"
            " them"
        )
    (source,) = found
    if isinstance(source.path, Remote):
        raise UsageError(f"{source.path}: fix reads files of this machine; download it first")
    if source.kind in TABLES and source.path.suffix.lower() in COMPRESSION_SUFFIXES:
        raise UsageError(
            f"{source.path}: a packed table can't be written row by row; unpack it first"
        )
    return source


def _chosen(spec: RunSpec) -> tuple[type[Remedy], ...]:
    """The remedies of the rules that are selected. Raises UsageError where these have none."""
    rules = {rule.name() for rule in choose(spec.select, spec.ignore, *DATA)}
    found = tuple(remedy for remedy in remedies() if remedy.rule in rules)
    if not found:
        named = ", ".join(spec.select) or "the rules that are left"
        known = ", ".join(sorted({remedy.rule for remedy in remedies()}))
        raise UsageError(f"no edit of rows ends what {named} finds; fix knows {known}")
    return found


def _inputs(spec: RunSpec) -> list[Path]:
    names = [
        *spec.data,
        *spec.eval_data,
        *filter(None, (spec.tokenizer, spec.model, spec.template)),
    ]
    return [Path(name) for name in names if "://" not in name]


class _Run:
    """One pass over the file."""

    def __init__(
        self,
        spec: RunSpec,
        source: Source,
        chosen: Sequence[type[Remedy]],
        target: Path | None,
        *,
        unsafe: bool,
        diff: Callable[[str], None] | None,
        progress: Progress | None,
        only_reference: bool,
    ) -> None:
        self._spec, self._source, self._target = spec, source, target
        self._unsafe, self._progress = unsafe, progress
        self._hunks: list[str] = []
        self._show_hunk = diff
        self._diff = None if diff is None else self._take_hunk
        setup = (
            prepare(spec, only_reference=only_reference) if spec.tokenizer or spec.model else None
        )
        self._judge = Judge(setup, only_reference=only_reference)
        context = Context(spec, setup, self._eval_prints())
        usable = [remedy for remedy in chosen if setup is not None or not remedy.needs_tokenizer]
        self._waiting = sorted(
            {remedy.rule for remedy in chosen} - {remedy.rule for remedy in usable}
        )
        made = [remedy(context) for remedy in usable if unsafe or remedy.safe]
        offered = [remedy(context) for remedy in usable if not unsafe and not remedy.safe]
        self._fixer = Fixer(context, self._judge, made, offered)
        self._broken_fits = any(remedy.rule == BROKEN for remedy in chosen)
        self._setup = setup
        self._rules = self._rules_of(usable, setup)
        self._problems: Counter[str] = Counter()
        self._kinds = {
            remedy.kinds: remedy.rule for remedy in usable if issubclass(remedy, ProblemRemedy)
        }
        self._first_problem: dict[str, Origin] = {}
        self._failed: list[NotJudged] = []
        self._broken, self._first_reason = Undone(), ""
        self._log: ChangeLog | None = None
        self.rows = self.changed_rows = self.dropped_rows = 0

    def __call__(self) -> Fixed:
        with ExitStack() as stack, open_raw(self._source.path) as raw:
            parts = self._open(stack)
            self._pass(raw, parts[0] if parts else None)
            if not self.rows:
                raise DataError(self._no_row())
            self._judge.prove()
            if parts is not None and self._log is not None:
                fixed, changes = parts
                fixed.finish()
                self._log.end(fixed)
                changes.finish()
                check_outputs(fixed.path, _inputs(self._spec))
                changes.publish()
                fixed.publish()
        return self._result()

    def _take_hunk(self, hunk: str) -> None:
        """Keep a hunk of the diff, and hand it on."""
        self._hunks.append(hunk)
        if self._show_hunk is not None:
            self._show_hunk(hunk)

    def _open(self, stack: ExitStack) -> tuple[PartialFile, PartialFile] | None:
        if self._target is None:
            return None
        try:
            fixed = stack.enter_context(PartialFile(self._target.resolve()))
            changes = stack.enter_context(PartialFile(changes_path(self._target).resolve()))
        except OSError as error:
            raise UsageError(f"{error.filename}: can't be written: {error.strerror}") from None
        about = {"data": str(self._source.path), "unsafe": self._unsafe}
        self._log = ChangeLog(changes, about)
        return fixed, changes

    def _pass(self, raw: IO[bytes], part: PartialFile | None) -> None:
        """Read the file once, fix its rows, and write them or show how they differ."""
        name = Path(str(self._source.path)).name
        differ = LineDiff(name, name, self._diff) if self._diff is not None else None
        if self._source.kind in TABLES:
            self._pass_table(raw, part, differ)
        else:
            self._pass_text(raw, part, differ)
        if differ is not None:
            differ.end()

    def _pass_text(self, raw: IO[bytes], part: PartialFile | None, differ: LineDiff | None) -> None:
        packed: IO[bytes] | None = None
        if part is not None:
            suffix = self._source.path.suffix
            packed = (
                packing(part.file, suffix) if suffix.lower() in COMPRESSION_SUFFIXES else part.file
            )

        def put(old: bytes, new: bytes) -> None:
            if packed is not None:
                packed.write(new)
            if differ is not None:
                differ.add(old, new)

        fix_text(self._source, raw, self._spec, self._fixing(raw), self._on_broken, put)
        if part is not None and packed is not None and packed is not part.file:
            packed.close()

    def _pass_table(
        self, raw: IO[bytes], part: PartialFile | None, differ: LineDiff | None
    ) -> None:
        fixing = self._fixing(raw)

        def fix_and_show(rows: list[FixRow]) -> None:
            before = [row.body.line() for row in rows] if differ is not None else []
            fixing(rows)
            for row, line in zip(rows, before, strict=False):
                if differ is not None:
                    new = "" if row.dropped else f"{row.body.line()}\n"
                    differ.add(
                        f"{line}\n".encode("utf-8", "surrogateescape"),
                        new.encode("utf-8", "surrogateescape"),
                    )

        with ExitStack() as stack:
            write: Callable[[Any], None] = _nowhere
            if part is not None:
                again = stack.enter_context(open_raw(self._source.path))
                write = stack.enter_context(table_writer(self._source, again, part.file))
            fix_table(self._source, raw, self._spec, fix_and_show, self._on_broken, write)

    def _fixing(self, raw: IO[bytes]) -> Callable[[list[FixRow]], None]:
        """Fixes a group of rows, and keeps account of it."""
        size = self._source.path.stat().st_size

        def fix_rows(rows: list[FixRow]) -> None:
            if rows:
                self._account(rows, self._fixer(rows))
            if self._progress is not None:
                self._progress(self.rows, raw.tell(), size)

        return fix_rows

    def _account(self, rows: list[FixRow], judged: Judged) -> None:
        self.rows += len(rows)
        self.changed_rows += sum(bool(row.changes) and not row.dropped for row in rows)
        self.dropped_rows += sum(row.dropped for row in rows)
        for row in rows:
            for change in row.changes:
                if self._log is not None:
                    self._log.add(change)
        for rule in list(self._rules):
            self._ask(rule, judged)
        if self._setup is None:
            self._count_problems(judged)

    def _ask(self, rule: DataRule, judged: Judged) -> None:
        """Let a rule look at rows; one that fails is out, and the others stand."""
        try:
            rule.batch(judged.batch)
        except TruetuneError:
            raise
        except Exception as error:
            self._failed.append(describe_failure(type(rule), error))
            self._rules.remove(rule)

    def _count_problems(self, judged: Judged) -> None:
        """Without a tokenizer no rule is asked: what the reader names is counted here."""
        for kinds, rule in self._kinds.items():
            self._problems[rule] += problems_of(judged.batch, kinds)
            for row in judged.batch.rows:
                if any(problem.kind in kinds for problem in row.problems):
                    self._first_problem.setdefault(rule, row.origin)

    def _on_broken(self, origin: Origin, reason: str) -> bool:
        self._broken.add(origin)
        self._first_reason = self._first_reason or reason
        return self._unsafe and self._broken_fits

    def _rules_of(self, usable: Sequence[type[Remedy]], setup: Setup | None) -> list[DataRule]:
        if setup is None:
            return []
        made = []
        for name in sorted({remedy.rule for remedy in usable}):
            kind = find(name)
            assert issubclass(kind, DataRule)
            rule = kind(setup)
            if self._spec.eval_data:
                rule.evaluation(self._eval_rows())
            made.append(rule)
        return made

    def _eval_rows(self) -> Any:
        return read_conversations(
            self._spec.eval_data, format=self._spec.format, columns=self._spec.map
        )

    def _eval_prints(self) -> frozenset[int]:
        if not self._spec.eval_data:
            return frozenset()
        judge = Judge(None)
        prints: Fingerprints = judge(list(self._eval_rows())).batch.fingerprints
        return frozenset(prints.normal.tolist())

    def _no_row(self) -> str:
        return self._first_reason or f"{self._source.path}: the file holds no row"

    def _result(self) -> Fixed:
        judged = Judgement.of(conclude_rule(rule) for rule in self._rules)
        findings = judged.findings
        offered = {key: undone.rows for key, undone in self._fixer.offers.items()}
        changed = dict(self._fixer.changed)
        if self._broken.rows and self._broken_fits:
            (changed if self._unsafe else offered)[BROKEN, NO_ROW] = self._broken.rows
        return Fixed(
            data=str(self._source.path),
            output=None if self._target is None else str(self._target),
            rows=self.rows + self._broken.rows,
            changed_rows=self.changed_rows,
            dropped_rows=self.dropped_rows + changed.get((BROKEN, NO_ROW), 0),
            changed=changed,
            left=tuple(self._left(findings)),
            offered=offered,
            judged_with_tokenizer=self._setup is not None,
            waiting_for_tokenizer=tuple(self._waiting),
            findings=findings,
            not_judged=(
                *self._failed,
                *self._fixer.failed,
                *missing(judged.not_judged),
                *self._unasked(),
            ),
            diff="".join(self._hunks) if self._diff is not None else None,
            allow_unjudged=self._spec.allow_unjudged,
        )

    def _unasked(self) -> Iterator[NotJudged]:
        """Rules that were named and need a tokenizer, and lines without a row where no rule looks at those."""
        for name in self._waiting if self._spec.select else ():
            yield NotJudged(
                name,
                "there is no tokenizer to render rows with",
                find(name).code,
                unlock=NAME_TOKENIZER,
            )
        if self._broken.rows and not self._broken_fits:
            lines = f"{self._broken.rows:,} lines"
            yield NotJudged(
                lines, f"they hold no row, as {self._first_reason}", unlock="correct these lines"
            )

    def _left(self, findings: Sequence[Finding]) -> list[Left]:
        left = [
            Left(
                rule=f.rule,
                message=f.message,
                rows=f.count or 0,
                first=_place(f),
                why=self._why(f.rule, f.remedy),
            )
            for f in findings
            if f.severity != "info"
        ]
        for rule, count in self._problems.items():
            if count:
                why = self._why(rule, "correct these rows by hand")
                first = str(self._first_problem[rule])
                left.append(
                    Left(rule=rule, message=f"{count:,} problems", rows=count, first=first, why=why)
                )
        if self._broken.rows and self._broken_fits and not self._unsafe:
            message = f"{self._broken.rows:,} lines hold no row, as {self._first_reason}"
            why = "correct these lines, or drop them with --unsafe"
            first = str(self._broken.first)
            left.append(
                Left(rule=BROKEN, message=message, rows=self._broken.rows, first=first, why=why)
            )
        return left

    def _why(self, rule: str, remedy: str) -> str:
        """The reasons that are known, or else what the rule itself advises."""
        offers = [what for name, what in self._fixer.offers if name == rule]
        if offers:
            return f"--unsafe would: {'; '.join(offers)}"
        refused = [
            f"{why} ({undone.rows:,}, first {undone.first})"
            for (name, why), undone in self._fixer.refused.items()
            if name == rule
        ]
        return "; ".join(refused[:3]) or remedy


def _place(finding: Finding) -> str:
    origin = next((case.origin for case in finding.cases if case.origin is not None), None)
    return "" if origin is None else str(origin)


def _nowhere(batch: Any) -> None:
    """Where nothing is to be written."""
