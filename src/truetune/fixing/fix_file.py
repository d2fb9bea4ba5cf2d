"""Fixes one file of rows (`truetune fix`): what is mechanical is edited or dropped, and what is
left is told.

The file is read once, in groups of rows. Each group goes through the remedies, and what is left of it through the rules
that have remedies, whose findings are what a person still has to do. Both outputs are written under temporary names
and published at the end, so that a run that breaks leaves nothing behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from truetune.checks.check_data import Progress, load_tokenizer_and_template
from truetune.checks.findings import Finding
from truetune.checks.judgement import Judgement, NotJudged, requested_parts_not_judged
from truetune.checks.rule import DataRule, Setup
from truetune.checks.rule_catalogue import DATA, find_rule, select_rules
from truetune.checks.rule_runner import conclude_rule, not_judged_since_failed
from truetune.data.conversation import Origin
from truetune.data.find_data_files import (
    COMPRESSION_SUFFIXES,
    DataFile,
    find_data_files_of_paths,
    open_raw,
)
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.data.remote_path import RemotePath
from truetune.data.write_atomically import PartialFile
from truetune.encoding.render_and_encode_in_two_threads import retry_without_shortcuts
from truetune.encoding.row_fingerprints import Fingerprints
from truetune.errors import DataError, TruetuneError, UsageError
from truetune.fixing.apply_proved_remedies import Fixer, FixRow, UnfixedCount
from truetune.fixing.base_of_row_remedies import (
    ProblemRemedy,
    Remedy,
    RemedyContext,
    count_reader_problems,
)
from truetune.fixing.fix_json_and_csv_files import fix_text_file
from truetune.fixing.fix_parquet_and_arrow_files import fix_table, open_table_writer
from truetune.fixing.judge_rows_before_and_after_edits import JudgedRows, RowJudge
from truetune.fixing.line_diff import LineDiff
from truetune.fixing.remedy_catalogue import all_remedies
from truetune.fixing.write_fixed_file_and_change_record import (
    ChangeLog,
    change_record_path,
    check_output_may_be_written,
    check_same_format_and_compression,
    open_compressed_output,
)
from truetune.parsing.decompress_within_limits import BROKEN_STREAM
from truetune.settings.row_formats import is_script_named_as_format
from truetune.settings.run_spec import RunSpec

TABLES = ("parquet", "arrow")
# Named here, since no remedy sees such a line: nothing of it can be edited.
BROKEN_RULE = "malformed-rows"
"""The rule that lines which hold no row belong to"""
# Worded as the remedies word what they do: reports list them together.
NO_ROW = "drop lines that hold no row"
NAME_TOKENIZER = "name a tokenizer with -t"


@dataclass(frozen=True, kw_only=True)
class UnfixedFinding:
    """A finding that a person has to look at, since no fix ended it."""

    rule: str
    message: str
    rows: int
    first: str
    """Where the first is"""
    why: str
    """Why it was not fixed, and what would"""


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """The result of `truetune fix`: what was done to a file, or would be."""

    data: str
    output: str | None
    """None where nothing was to be written"""
    rows: int
    changed_rows: int
    dropped_rows: int
    changed: dict[tuple[str, str], int]
    """(rule, what was done) -> rows"""
    left: tuple[UnfixedFinding, ...]
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
        """The path of the record of changes; None where none was written."""
        return None if self.output is None else str(change_record_path(Path(self.output)))

    def failed(self) -> bool:
        """Is something left for a person?"""
        return bool(self.left)

    def exit_code(self) -> int:
        """1 where something is left for a person, or a diff shows changes; 3 where something that was asked for could
        not be judged; else 0."""
        if self.failed() or (self.diff is not None and self.changed):
            return 1
        return 3 if self.not_judged and not self.allow_unjudged else 0


def fix_data_file(
    spec: RunSpec,
    output: str | None,
    *,
    unsafe: bool = False,
    diff: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Fixed:
    """Fix the rows of the one file that `spec` names, as far as the selected rules have remedies.

    Args:
        spec: data, tokenizer, and how rows are read; without a tokenizer, only what the reader sees is fixed.
        output: the file that is written, and beside it the record of changes; None writes nothing.
        unsafe: make those edits too that may change what rows mean, and drop rows.
        diff: takes the hunks of a unified diff; nothing is written then. The result has the whole of it.
        progress: told rows done, bytes read, and bytes in all.

    Raises UsageError, SpecError, TokenizerError, TemplateError, or DataError where the file can't be read.
    """
    if spec.format is not None and is_script_named_as_format(spec.format):
        raise UsageError(
            "fix edits rows as their file has them; leave --data-format out, or name a format of rows"
        )
    source = _only_source(spec)
    chosen = _choose_remedies(spec)
    target = Path(output) if output is not None and diff is None else None
    if target is not None:
        check_same_format_and_compression(Path(str(source.path)), target)
        check_output_may_be_written(target, _local_input_files(spec))
    try:
        return retry_without_shortcuts(
            lambda only_reference: _FixRun(
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


def _only_source(spec: RunSpec) -> DataFile:
    """The one file to fix. Raises DataError or UsageError where there is not exactly one."""
    sources = find_data_files_of_paths(spec.data)
    if len(sources) != 1:
        raise UsageError(
            f"{', '.join(spec.data)}: {len(sources):,} files; fix takes one at a time: name one of"
            " them"
        )
    (source,) = sources
    if isinstance(source.path, RemotePath):
        raise UsageError(f"{source.path}: fix reads files of this machine; download it first")
    # A table is written from its end, and a packed one would have to be held whole.
    if source.kind in TABLES and source.path.suffix.lower() in COMPRESSION_SUFFIXES:
        raise UsageError(
            f"{source.path}: a packed table can't be written row by row; unpack it first"
        )
    return source


def _choose_remedies(spec: RunSpec) -> tuple[type[Remedy], ...]:
    """The remedies of the rules that are selected. Raises UsageError where these have none."""
    rules = {rule.name() for rule in select_rules(spec.select, spec.ignore, *DATA)}
    chosen = tuple(remedy for remedy in all_remedies() if remedy.rule in rules)
    if not chosen:
        named = ", ".join(spec.select) or "the rules that are left"
        known = ", ".join(sorted({remedy.rule for remedy in all_remedies()}))
        raise UsageError(f"no edit of rows ends what {named} finds; fix knows {known}")
    return chosen


def _local_input_files(spec: RunSpec) -> list[Path]:
    """The files of this machine that the command reads, none of which may be written over."""
    names = [
        *spec.data,
        *spec.eval_data,
        *filter(None, (spec.tokenizer, spec.model, spec.template)),
    ]
    # Of a store no local file can be an output.
    return [Path(name) for name in names if "://" not in name]


def _usable_remedies(remedies: Sequence[type[Remedy]], setup: Setup | None) -> list[type[Remedy]]:
    """The remedies that can be used: without a tokenizer, those that need none."""
    return [remedy for remedy in remedies if setup is not None or not remedy.needs_tokenizer]


def _rules_of_remedies(remedies: Iterable[type[Remedy]]) -> set[str]:
    """The names of the rules whose findings some remedies end."""
    return {remedy.rule for remedy in remedies}


def _rule_by_problem_kinds(remedies: Sequence[type[Remedy]]) -> dict[tuple[str, ...], str]:
    """Kinds of problems that the reader names -> the rule that they belong to."""
    return {remedy.kinds: remedy.rule for remedy in remedies if issubclass(remedy, ProblemRemedy)}


class _FixRun:
    """One pass over the file: reads, fixes, counts and writes."""

    def __init__(
        self,
        spec: RunSpec,
        source: DataFile,
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
        self._diff = None if diff is None else self._count_and_pass_on_diff_hunk
        has_tokenizer = bool(spec.tokenizer or spec.model)
        self._setup = (
            load_tokenizer_and_template(spec, only_reference=only_reference)
            if has_tokenizer
            else None
        )
        self._judge = RowJudge(self._setup, only_reference=only_reference)
        usable = _usable_remedies(chosen, self._setup)
        self._waiting = sorted(_rules_of_remedies(chosen) - _rules_of_remedies(usable))
        self._fixer = self._make_fixer(usable)
        self._broken_fits = BROKEN_RULE in _rules_of_remedies(chosen)
        self._rules = self._make_rules_of_remedies(usable, self._setup)
        self._problems: Counter[str] = Counter()
        self._rule_by_kinds = _rule_by_problem_kinds(usable)
        self._first_problem: dict[str, Origin] = {}
        self._failed: list[NotJudged] = []
        self._broken, self._first_reason = UnfixedCount(), ""
        self._log: ChangeLog | None = None
        self.rows = self.changed_rows = self.dropped_rows = 0

    def _make_fixer(self, usable: Sequence[type[Remedy]]) -> Fixer:
        """The fixer of this run. Remedies that are not safe are only offered, unless they are asked for."""
        context = RemedyContext(self._spec, self._setup, self._fingerprints_of_eval_rows())
        applied = [remedy(context) for remedy in usable if self._unsafe or remedy.safe]
        offered = [remedy(context) for remedy in usable if not self._unsafe and not remedy.safe]
        return Fixer(context, self._judge, applied, offered)

    def __call__(self) -> Fixed:
        """Read, fix and write the file. Raises what `fix_data_file` raises."""
        with ExitStack() as stack, open_raw(self._source.path) as raw:
            parts = self._open_outputs(stack)
            self._fix_all_rows(raw, parts[0] if parts else None)
            if not self.rows:
                raise DataError(self._message_for_file_without_rows())
            # Before anything is published: a shortcut of the renderer that was wrong voids all
            # proofs, and the run begins again without.
            self._judge.verify_renderer()
            if parts is not None and self._log is not None:
                fixed, changes = parts
                fixed.finish()
                self._log.end(fixed)
                changes.finish()
                # Once more: the work may have taken hours, and somebody may have put a file there.
                check_output_may_be_written(fixed.path, _local_input_files(self._spec))
                # The record first: a fixed file without one would be a stranger to the next run.
                changes.publish()
                fixed.publish()
        return self._make_result()

    def _count_and_pass_on_diff_hunk(self, hunk: str) -> None:
        """Count a hunk of the diff, and pass it to whoever shows it."""
        self._hunks.append(hunk)
        if self._show_hunk is not None:
            self._show_hunk(hunk)

    def _open_outputs(self, stack: ExitStack) -> tuple[PartialFile, PartialFile] | None:
        """The output and its record under temporary names; None where nothing is written. Raises UsageError."""
        if self._target is None:
            return None
        try:
            fixed = stack.enter_context(PartialFile(self._target.resolve()))
            changes = stack.enter_context(PartialFile(change_record_path(self._target).resolve()))
        except OSError as error:
            raise UsageError(f"{error.filename}: can't be written: {error.strerror}") from None
        about = {"data": str(self._source.path), "unsafe": self._unsafe}
        self._log = ChangeLog(changes, about)
        return fixed, changes

    def _fix_all_rows(self, raw: IO[bytes], part: PartialFile | None) -> None:
        """Read the file once, fix its rows, and write them or show how they differ."""
        name = Path(str(self._source.path)).name
        differ = LineDiff(name, name, self._diff) if self._diff is not None else None
        if self._source.kind in TABLES:
            self._fix_table_rows(raw, part, differ)
        else:
            self._fix_text_rows(raw, part, differ)
        if differ is not None:
            differ.end()

    def _fix_text_rows(
        self, raw: IO[bytes], part: PartialFile | None, differ: LineDiff | None
    ) -> None:
        """Fix the rows of a text file: its bytes are copied unless a row changed."""
        packed: IO[bytes] | None = None
        if part is not None:
            # The output is packed as the input is, which its name promises.
            suffix = self._source.path.suffix
            packed = (
                open_compressed_output(part.file, suffix)
                if suffix.lower() in COMPRESSION_SUFFIXES
                else part.file
            )

        def put(old: bytes, new: bytes) -> None:
            """Write what stands in a row's place, and show where the two differ."""
            if packed is not None:
                packed.write(new)
            if differ is not None:
                differ.add(old, new)

        fix_text_file(
            self._source, raw, self._spec, self._make_group_fixer(raw), self._drop_broken_line, put
        )
        # The end of a packed stream has a checksum, which is written only when it is closed.
        if part is not None and packed is not None and packed is not part.file:
            packed.close()

    def _fix_table_rows(
        self, raw: IO[bytes], part: PartialFile | None, differ: LineDiff | None
    ) -> None:
        """Fix the rows of a table file: its batches are copied unless a row changed."""
        fixing = self._make_group_fixer(raw)

        def fix_and_show(rows: list[FixRow]) -> None:
            """Fix rows, and show how they differ."""
            # A diff shows a row of a table as the JSON that a person can read.
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
            write: Callable[[Any], None] = _do_nothing_with_batch
            if part is not None:
                # A second handle: the writer needs the schema from the end of the file while the
                # reader is inside.
                again = stack.enter_context(open_raw(self._source.path))
                write = stack.enter_context(open_table_writer(self._source, again, part.file))
            fix_table(self._source, raw, self._spec, fix_and_show, self._drop_broken_line, write)

    def _make_group_fixer(self, raw: IO[bytes]) -> Callable[[list[FixRow]], None]:
        """A function that fixes a group of rows, and counts what became of them."""
        size = self._source.path.stat().st_size

        def fix_rows(rows: list[FixRow]) -> None:
            """Fix a group, which may be empty, and tell how far it has come."""
            if rows:
                self._count_record_and_judge_group(rows, self._fixer(rows))
            if self._progress is not None:
                self._progress(self.rows, raw.tell(), size)

        return fix_rows

    def _count_record_and_judge_group(self, rows: list[FixRow], judged_rows: JudgedRows) -> None:
        """Count a group of rows, record its changes, and let the rules judge what is left."""
        self.rows += len(rows)
        self.changed_rows += sum(bool(row.changes) and not row.dropped for row in rows)
        self.dropped_rows += sum(row.dropped for row in rows)
        for row in rows:
            for change in row.changes:
                if self._log is not None:
                    self._log.add(change)
        # A copy, for a rule that fails leaves the list.
        for rule in list(self._rules):
            self._let_rule_judge_or_exclude_it(rule, judged_rows)
        # With a tokenizer the rules themselves count these problems.
        if self._setup is None:
            self._count_reader_problems(judged_rows)

    def _let_rule_judge_or_exclude_it(self, rule: DataRule, judged_rows: JudgedRows) -> None:
        """Let a rule judge rows; one that fails is excluded, and the others stand."""
        try:
            rule.add_batch(judged_rows.batch)
        except TruetuneError:
            raise
        except Exception as error:
            self._failed.append(not_judged_since_failed(type(rule), error))
            self._rules.remove(rule)

    def _count_reader_problems(self, judged_rows: JudgedRows) -> None:
        """Count the problems that the reader names, where no rule is asked for want of a tokenizer."""
        for kinds, rule in self._rule_by_kinds.items():
            self._problems[rule] += count_reader_problems(judged_rows.batch, kinds)
            for row in judged_rows.batch.rows:
                if any(problem.kind in kinds for problem in row.problems):
                    self._first_problem.setdefault(rule, row.origin)

    def _drop_broken_line(self, origin: Origin, reason: str) -> bool:
        """Count a line that holds no row; True where it is dropped."""
        self._broken.add(origin)
        self._first_reason = self._first_reason or reason
        return self._unsafe and self._broken_fits

    def _make_rules_of_remedies(
        self, usable: Sequence[type[Remedy]], setup: Setup | None
    ) -> list[DataRule]:
        """The rules that some remedies belong to, ready to look at rows."""
        if setup is None:
            return []
        instances = []
        for name in sorted({remedy.rule for remedy in usable}):
            kind = find_rule(name)
            assert issubclass(kind, DataRule)
            rule = kind(setup)
            if self._spec.eval_data:
                # Rules on leaks need the evaluation rows before the first row of the data.
                rule.evaluation(self._read_eval_rows())
            instances.append(rule)
        return instances

    def _read_eval_rows(self) -> Any:
        """The rows of the evaluation data."""
        return read_conversations(
            self._spec.eval_data, format=self._spec.format, columns=self._spec.map
        )

    def _fingerprints_of_eval_rows(self) -> frozenset[int]:
        """The fingerprints of the evaluation rows, by which leaked rows are known."""
        if not self._spec.eval_data:
            return frozenset()
        judge = RowJudge(None)
        prints: Fingerprints = judge(list(self._read_eval_rows())).batch.fingerprints
        return frozenset(prints.normal.tolist())

    def _message_for_file_without_rows(self) -> str:
        """What is said of a file without a row."""
        return self._first_reason or f"{self._source.path}: the file holds no row"

    def _make_result(self) -> Fixed:
        """The result: what was done, and what is left."""
        judgement = Judgement.of(conclude_rule(rule) for rule in self._rules)
        findings = judgement.findings
        offered = {key: undone.rows for key, undone in self._fixer.offers.items()}
        changed = dict(self._fixer.changed)
        if self._broken.rows and self._broken_fits:
            # Lines that hold no row never reach a remedy: they are counted here, and go as they are
            # read.
            (changed if self._unsafe else offered)[BROKEN_RULE, NO_ROW] = self._broken.rows
        return Fixed(
            data=str(self._source.path),
            output=None if self._target is None else str(self._target),
            rows=self.rows + self._broken.rows,
            changed_rows=self.changed_rows,
            dropped_rows=self.dropped_rows + changed.get((BROKEN_RULE, NO_ROW), 0),
            changed=changed,
            left=tuple(self._unfixed_findings(findings)),
            offered=offered,
            judged_with_tokenizer=self._setup is not None,
            waiting_for_tokenizer=tuple(self._waiting),
            findings=findings,
            not_judged=(
                *self._failed,
                *self._fixer.failed,
                *requested_parts_not_judged(judgement.not_judged),
                *self._what_was_not_judged(),
            ),
            # Handed on hunk by hunk while the file is read, and kept for callers that want the
            # result alone.
            diff="".join(self._hunks) if self._diff is not None else None,
            allow_unjudged=self._spec.allow_unjudged,
        )

    def _what_was_not_judged(self) -> Iterator[NotJudged]:
        """What was not judged: rules that were named and need a tokenizer, and lines without a row
        where no rule looks at those.
        """
        # Without --select the user asked for whatever can be done: what can't is said in the
        # summary, and is no failure.
        for name in self._waiting if self._spec.select else ():
            yield NotJudged(
                name,
                "there is no tokenizer to render rows with",
                find_rule(name).code,
                unlock=NAME_TOKENIZER,
            )
        if self._broken.rows and not self._broken_fits:
            lines = f"{self._broken.rows:,} lines"
            yield NotJudged(
                lines, f"they hold no row, as {self._first_reason}", unlock="correct these lines"
            )

    def _unfixed_findings(self, findings: Sequence[Finding]) -> list[UnfixedFinding]:
        """What a person has to look at, with the reason why it was not fixed."""
        left = [
            UnfixedFinding(
                rule=f.rule,
                message=f.message,
                rows=f.count or 0,
                first=_first_place(f),
                why=self._why_not_fixed(f.rule, f.remedy),
            )
            for f in findings
            # What is only worth knowing is nothing to do.
            if f.severity != "info"
        ]
        for rule, count in self._problems.items():
            if count:
                why = self._why_not_fixed(rule, "correct these rows by hand")
                first = str(self._first_problem[rule])
                left.append(
                    UnfixedFinding(
                        rule=rule, message=f"{count:,} problems", rows=count, first=first, why=why
                    )
                )
        if self._broken.rows and self._broken_fits and not self._unsafe:
            message = f"{self._broken.rows:,} lines hold no row, as {self._first_reason}"
            why = "correct these lines, or drop them with --unsafe"
            first = str(self._broken.first)
            left.append(
                UnfixedFinding(
                    rule=BROKEN_RULE, message=message, rows=self._broken.rows, first=first, why=why
                )
            )
        return left

    def _why_not_fixed(self, rule: str, remedy: str) -> str:
        """The reasons that are known, or else what the rule itself advises."""
        # What an option would do comes first: it is a next step, where a refusal is only a reason.
        offers = [what for name, what in self._fixer.offers if name == rule]
        if offers:
            return f"--unsafe would: {'; '.join(offers)}"
        refused = [
            f"{why} ({undone.rows:,}, first {undone.first})"
            for (name, why), undone in self._fixer.refused.items()
            if name == rule
        ]
        # Three: each names a reason and a place, and a line has to be read.
        return "; ".join(refused[:3]) or remedy


def _first_place(finding: Finding) -> str:
    """Where the first case of a finding stands; empty where it has none."""
    origin = next((case.origin for case in finding.cases if case.origin is not None), None)
    return "" if origin is None else str(origin)


def _do_nothing_with_batch(batch: Any) -> None:
    """Do nothing with a batch, where nothing is to be written."""
