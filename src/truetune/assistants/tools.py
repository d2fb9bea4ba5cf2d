"""The six tools that a coding assistant calls, as plain functions that return records with a JSON form.

The commands and the tools call the same functions of the library; a tool has only the arguments that an assistant
can know. Each call judges the files as they are now (`cached_for_one_call`). Nothing is printed.
`fix_files` alone can write, and only with `write=True`. The trade-off: a report comes
whole at the end, without progress, since a client waits for one answer.

Every function raises a `truetune.errors.TruetuneError`, whose text is one line, if its input can't be read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truetune.cached_for_one_call import clear_one_call_caches
from truetune.errors import UsageError
from truetune.package import __version__
from truetune.settings.run_spec import RunSpec
from truetune.trainers.trainer_fact_types import TrainerName

if TYPE_CHECKING:
    from truetune.report.brief_json import BriefReport

EXPLANATION_SCHEMA = "truetune.explanation/1"
FIX_SCHEMA = "truetune.brief-fix/1"
# Chosen: about 8,000 tokens. An assistant that needs more can read the diff from the command.
MAX_DIFF_CHARACTERS = 32_000
SOURCE_SUFFIXES = (".py", ".ipynb")
"""Files whose findings `lint` fixes; `fix` edits rows"""


@dataclass(frozen=True, slots=True)
class ExplainedTopic:
    """A rule, known message, guide or command that fits the words of a question."""

    kind: str
    name: str
    code: str
    title: str
    causes: tuple[str, ...]
    command: str
    """The command that shows all of it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is known of a rule, or of some words: a page, or the topics that fit best."""

    schema: str = EXPLANATION_SCHEMA
    truetune: str = __version__
    name: str
    page: str
    """Markdown; empty where words were searched"""
    topics: tuple[ExplainedTopic, ...]

    def as_json(self) -> str:
        """It as a JSON object in ASCII."""
        return json.dumps(asdict(self), indent=1)


@dataclass(frozen=True, slots=True)
class FixedRule:
    """What was changed, or would be, for one rule."""

    rule: str
    change: str
    count: int
    """Findings of a script, or rows of a data file"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixResult:
    """The edits of a script or of rows."""

    schema: str = FIX_SCHEMA
    truetune: str = __version__
    path: str
    written: tuple[str, ...]
    """The files that were written; none without `write`"""
    changes: tuple[FixedRule, ...]
    unsafe_changes: tuple[FixedRule, ...]
    """What `unsafe` would change besides; it may alter what rows mean. Of rows alone"""
    left: tuple[str, ...]
    """One line for each finding that no edit ended"""
    not_judged: tuple[str, ...]
    diff: str
    """The unified diff; of rows, empty once they are written"""
    diff_is_cut: bool
    """Is the diff longer than what is shown?"""

    def as_json(self) -> str:
        """It as a JSON object in ASCII."""
        return json.dumps(asdict(self), indent=1)


def check_files(
    paths: Sequence[str], tokenizer: str | None = None, trainer: TrainerName | None = None
) -> BriefReport:
    """Check rows, settings, scripts, logs and checkpoints, as `truetune check` does.

    Args:
        paths: files or folders that belong to one run.
        tokenizer: the folder of the tokenizer or model.
        trainer: whose trainer reads the rows, where no settings or script say so.

    Returns:
        The report in brief.

    Raises:
        TruetuneError: no path is named, or one can't be read.
    """
    from truetune.report.brief_json import make_brief_report
    from truetune.troubleshooting.check_project import check_project

    clear_one_call_caches()
    _refuse_empty(paths, "paths")
    spec = _make_spec("check", tokenizer=tokenizer, trained_by=trainer)
    return make_brief_report(check_project(list(paths), spec))


def lint_files(paths: Sequence[str]) -> BriefReport:
    """Check Python files, notebooks and shell scripts, as `truetune lint` does.

    Args:
        paths: files, or folders of them.

    Returns:
        The report in brief.

    Raises:
        TruetuneError: no path is named, or one can't be read.
    """
    from truetune.checks.lint import lint
    from truetune.report.brief_json import make_brief_report

    clear_one_call_caches()
    _refuse_empty(paths, "paths")
    return make_brief_report(lint(paths))


def diagnose_run(path: str, data: Sequence[str] = (), tokenizer: str | None = None) -> BriefReport:
    """Diagnose the log of a run, as `truetune diagnose` does.

    Args:
        path: a run's folder, a checkpoint, or a log.
        data: the training data of the run, which say what its loss can be.
        tokenizer: the folder of the run's tokenizer; `data` needs it.

    Returns:
        The report in brief.

    Raises:
        TruetuneError: there is no log, or `data` is given without `tokenizer`.
    """
    from truetune.checks.diagnose_log import diagnose
    from truetune.report.brief_json import make_brief_report

    clear_one_call_caches()
    if data and tokenizer is None:
        raise UsageError("data needs the run's tokenizer: name its folder as tokenizer")
    spec = _make_spec("diagnose", tokenizer=tokenizer, data=tuple(data) or None)
    return make_brief_report(diagnose(path, spec=spec))


def troubleshoot_symptom(
    symptom: str, paths: Sequence[str], tokenizer: str | None = None
) -> BriefReport:
    """Find what explains a symptom in the files of a run, as `truetune troubleshoot` does.

    Args:
        symptom: what is seen, in one's own words, or a pasted error.
        paths: files or folders of the run.
        tokenizer: the folder of the tokenizer or model.

    Returns:
        The report in brief: what proves a cause comes first, and `causes` are left to check.

    Raises:
        TruetuneError: symptom or paths are empty, or a path can't be read.
    """
    from truetune.report.brief_json import make_brief_report
    from truetune.troubleshooting.troubleshoot import troubleshoot

    clear_one_call_caches()
    spec = _make_spec("troubleshoot", tokenizer=tokenizer)
    return make_brief_report(troubleshoot(symptom, list(paths), spec))


def explain_rule_or_words(question: str) -> Explanation:
    """Give the page of a rule, fault, known message or guide; or search all of them for some words.

    Args:
        question: the name of a rule or a fault, a rule's code, or any words.

    Returns:
        The page, or the topics that fit best.

    Raises:
        UsageError: nothing is known of it.
    """
    from truetune.checks.explaining.is_written_like_rule_name import is_written_like_rule_name
    from truetune.checks.explaining.search_rules_messages_guides_commands import (
        list_topics,
        search_topics,
    )
    from truetune.report.explain_messages_and_guides_terminal import (
        find_message_or_guide,
        message_or_guide_json,
        search_hits_json,
    )

    question = question.strip()
    _refuse_empty(question, "question")
    topic = find_message_or_guide(question)
    if topic is not None:
        page = message_or_guide_json(topic)["page"]
        return Explanation(name=topic.name, page=page, topics=())
    if is_written_like_rule_name(question):
        # Loads every rule, which a search has no need of.
        from truetune.checks.rule_catalogue import find_fault
        from truetune.report.rules_terminal import fault_page, rule_page_json

        fault = find_fault(question)
        if fault is not None:
            return Explanation(name=fault.name, page=fault_page(fault), topics=())
        rule = rule_page_json(question)
        return Explanation(name=rule["rule"], page=rule["page"], topics=())
    hits = search_hits_json(search_topics(question, list_topics()))["topics"]
    if not hits:
        raise UsageError(f"nothing is known of {question!r}; say it in other words")
    return Explanation(name="", page="", topics=tuple(map(_make_explained_topic, hits)))


def fix_files(
    path: str,
    tokenizer: str | None = None,
    *,
    write: bool = False,
    output: str | None = None,
    unsafe: bool = False,
) -> FixResult:
    """Show the edits that end findings of scripts or rows, or make them.

    Args:
        path: a script, a notebook, a folder of them, or a file of rows.
        tokenizer: of rows, the folder of the tokenizer or model.
        write: make the edits. A script is edited in place; rows go to `output`.
        output: the new file of rows; `output`.changes.jsonl lists each change.
        unsafe: make those edits too that may change what rows or code mean.

    Returns:
        The diff and the changes; nothing was written unless `write` is true.

    Raises:
        TruetuneError: the path can't be read, or rows are to be written and `output` is missing or can't be written.
    """
    clear_one_call_caches()
    if not Path(path).exists():
        raise UsageError(f"{path}: there is no such file or folder")
    if Path(path).is_dir() or Path(path).suffix in SOURCE_SUFFIXES:
        if output is not None:
            raise UsageError(f"{path}: scripts are edited in place; leave output out")
        return _fix_sources(path, write=write, unsafe=unsafe)
    if write and output is None:
        raise UsageError(f"{path}: rows are never edited in place: name a new file as output")
    if output is not None and not write:
        raise UsageError(f"{output}: nothing is written without write=true")
    return _fix_rows(path, tokenizer, output, unsafe=unsafe)


def _fix_sources(path: str, *, write: bool, unsafe: bool) -> FixResult:
    """The edits of scripts, made only with `write`."""
    from truetune.checks.lint import lint

    report = lint([path], fix=write, unsafe=unsafe, diff=not write)
    diff = "".join(change.diff for change in report.changes)
    fixed = Counter(
        (finding.rule, finding.remedy) for change in report.changes for finding in change.fixed
    )
    fixed_rules = {rule for rule, _ in fixed}
    # A diff changes nothing, so the report still has what it would end.
    left = [one for one in report.findings if write or one.rule not in fixed_rules]
    return FixResult(
        path=path,
        written=tuple(change.path for change in report.changes) if write else (),
        changes=_fixed_rules(fixed),
        unsafe_changes=(),
        left=tuple(f"{finding.rule}: {finding.message}; {finding.remedy}" for finding in left),
        not_judged=tuple(map(str, report.requested_not_judged())),
        diff=diff[:MAX_DIFF_CHARACTERS],
        diff_is_cut=len(diff) > MAX_DIFF_CHARACTERS,
    )


def _fix_rows(path: str, tokenizer: str | None, output: str | None, *, unsafe: bool) -> FixResult:
    """The edits of rows, written only to `output`."""
    from truetune.fixing.fix_file import fix_data_file

    spec = _make_spec("fix", tokenizer=tokenizer, data=(path,))
    # The result holds the whole diff; what is done with each hunk on its way is for terminals.
    fixed = fix_data_file(
        spec, output, unsafe=unsafe, diff=(lambda hunk: None) if output is None else None
    )
    diff = fixed.diff or ""
    return FixResult(
        path=path,
        written=tuple(name for name in (fixed.output, fixed.changes) if name is not None),
        changes=_fixed_rules(fixed.changed),
        unsafe_changes=_fixed_rules(fixed.offered),
        left=tuple(
            f"{left.rule}: {left.message} (first: {left.first}); {left.why}" for left in fixed.left
        ),
        not_judged=(
            *map(str, fixed.not_judged),
            *(f"{rule}: name a tokenizer" for rule in fixed.waiting_for_tokenizer),
        ),
        diff=diff[:MAX_DIFF_CHARACTERS],
        diff_is_cut=len(diff) > MAX_DIFF_CHARACTERS,
    )


def _fixed_rules(counts: dict[tuple[str, str], int]) -> tuple[FixedRule, ...]:
    """The counts of a fix as records."""
    return tuple(FixedRule(rule, change, rows) for (rule, change), rows in counts.items())


def _make_explained_topic(hit: dict[str, Any]) -> ExplainedTopic:
    """A hit of the search as a record."""
    return ExplainedTopic(
        kind=hit["kind"],
        name=hit["name"],
        code=hit["code"],
        title=hit["title"],
        causes=tuple(cause["text"] for cause in hit["causes"]),
        command=hit["command"],
    )


def _make_spec(tool: str, **settings: object) -> RunSpec:
    """The settings of a tool's arguments, those that were given. Raises SpecError."""
    from truetune.settings.read_truetune_settings import validate_settings

    given = {name: value for name, value in settings.items() if value is not None}
    return validate_settings(given, f"the tool {tool}")


def _refuse_empty(value: Sequence[str], argument: str) -> None:
    """Raise UsageError where an argument is empty."""
    if not value:
        raise UsageError(f"{argument} is empty: name at least one")
