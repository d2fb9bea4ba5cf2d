"""Makes the page of a rule as its readers see it: on the site, and by `truetune explain`.

The page in the rule's file holds the example as the rule's first test needs it. Readers get the
files that people write, what truetune prints for them, the fix as a difference between the two, and
how sure the rule is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import SequenceMatcher, unified_diff
from typing import Any

from truetune.checks.rule import UNRELEASED, Rule
from truetune.checks.rule_catalogue import rule_page, station_of_rule
from truetune.report.rule_pages.example_files import Example, ExampleFile
from truetune.report.rule_pages.read_example import (
    AFTER,
    BEFORE,
    examples_of_rule,
    sections_of_page,
)
from truetune.report.rule_pages.shorten_text import MAX_RECORDS, ShortText, shorten_text
from truetune.settings.stacks.registry import config_readers
from truetune.trainers import TRAINERS
from truetune.trainers.trainer_fact_types import TrainerFacts

PRINTED, CERTAINTY, REFERENCES = "What truetune prints", "How sure it is", "References"
OUTCOMES = ("log", "checkpoint", "answers", "cause", "evaluation", "serving")
"""Stations whose examples a run or a server gives: nobody edits them to remove the fault"""
SAME_WITHOUT_FAULT = "The same without the fault"
SHOWN_HEADINGS = {"Fix safety": "Before you fix it"}
"""Headings of a rule's file that readers see in other words"""
# Chosen, not measured: with less in common, a difference is two files in one block, and neither can
# be read.
MIN_COMMON_SHARE = 0.4
"""Of the lines of both files, for a difference to be shown instead of the new file"""
MAX_LINES_ALWAYS_COMPARED = 6
"""Lines of files whose difference is short, whatever they have in common"""
MAX_LINES_AS_A_WHOLE = 40
"""Lines of a file whose difference has all lines that stay"""
LINES_AROUND_CHANGE = 3
"""In the difference of a longer file"""
STABLE = (
    "Stable: it has a case in the bug bench, a test on real tokenizers, models or trainers, and a"
    " public source."
)
PREVIEW = (
    "Preview: at least one of these is still missing: a case in the bug bench, a test on real"
    " tokenizers, models or trainers, a public source. Preview rules are on by default;"
    " `--select stable` turns them off."
)
CERTAINTY_BY_SEVERITY = {
    "error": "Errors are reported only if the evidence leaves no doubt.",
    "warning": "What a warning reports can be intentional.",
    "info": "No change is needed.",
}


def rule_page_for_readers(rule: type[Rule[Any]], printed: str = "") -> str:
    """The page of a rule with its example as files.

    Args:
        rule: any rule; the example of a plug-in's is left as it is written.
        printed: what truetune prints for the example; empty where that is not known.

    Returns:
        Markdown, from the summary on.
    """
    page = rule_page(rule)
    sections = sections_of_page(page)
    examples = examples_of_rule(rule)
    if examples is not None:
        before, after = examples
        sections[BEFORE] = _shown_example(before)
        if station_of_rule(rule) in OUTCOMES:
            sections[AFTER] = _shown_example(after)
        else:
            sections[AFTER] = _differences_that_fix_example(before, after)
    parts = [page.partition("\n## ")[0].strip()]
    for heading, text in sections.items():
        if heading == REFERENCES:
            parts.append(f"## {CERTAINTY}\n{describe_how_sure_rule_is(rule)}")
        parts.append(f"## {shown_heading(rule, heading)}\n{text}")
        if heading == BEFORE and printed:
            parts.append(f"## {PRINTED}\n{fenced(printed, 'text')}")
    return "\n\n".join(parts) + "\n"


def shown_heading(rule: type[Rule[Any]], heading: str) -> str:
    """A heading of a rule's file as readers see it: nobody uses another log *instead*."""
    if heading == AFTER and station_of_rule(rule) in OUTCOMES:
        return SAME_WITHOUT_FAULT
    return SHOWN_HEADINGS.get(heading, heading)


def describe_how_sure_rule_is(rule: type[Rule[Any]]) -> str:
    """How sure a rule is, in Markdown: its stability, its highest severity, and what that depends
    on.
    """
    since = f"Available since {rule.since}."
    if rule.since == UNRELEASED:
        since = "New in the next version."
    parts = [
        f"{STABLE if rule.stability == 'stable' else PREVIEW} {since}",
        f"Its highest severity is *{rule.severity}*. {CERTAINTY_BY_SEVERITY[rule.severity]}",
    ]
    stacks: tuple[str, ...] = getattr(rule, "stacks", ())
    if stacks:
        readers = config_readers()
        titles = [readers[name].title if name in readers else f"{name} settings" for name in stacks]
        parts.append(f"It applies only to {', '.join(titles)}.")
    lines = [] if stacks else list(_lines_on_trainers(rule))
    if lines:
        parts.append("With these trainers its highest severity is:\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _lines_on_trainers(rule: type[Rule[Any]]) -> Iterator[str]:
    for trainer in TRAINERS.values():
        severity = severity_under_trainer(rule, trainer)
        if severity != rule.severity:
            yield f"- {trainer.name_in_reports}: {severity or 'none, the rule does not apply'}"


def severity_under_trainer(rule: type[Rule[Any]], trainer: TrainerFacts) -> str | None:
    """The highest severity of a rule under a trainer; None if the rule says nothing of its runs."""
    stacks = getattr(rule, "stacks", ())
    if stacks and trainer.name not in stacks:
        return None
    lowest = {"error": 2, "warning": 1, "info": 0}
    severity: str = rule.severity
    for fact in rule.by_trainer:
        verdict = fact.severity_for_trainer(trainer)
        if verdict is None:
            continue
        if verdict.at_most is None:
            return None
        severity = min(severity, verdict.at_most, key=lowest.__getitem__)
    return severity


def fenced(text: str, language: str) -> str:
    """A block of Markdown, with a fence that is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def _shown_example(example: Example) -> str:
    parts = [_shown_file(file) for file in example.files]
    return "\n\n".join([*parts, *_paragraph(example.notes)])


def _paragraph(sentences: Iterable[str]) -> Iterator[str]:
    text = " ".join(sentences)
    if text:
        yield text


def _shown_file(file: ExampleFile) -> str:
    short_text = shorten_text(file.text, file.records_to_show)
    if not file.text:
        return _caption(replace(file, about="empty"), short_text)
    return f"{_caption(file, short_text)}\n\n{fenced(short_text.text, file.language)}"


def _caption(file: ExampleFile, short_text: ShortText) -> str:
    name = f"**{file.name}**" if file.is_measured else f"**`{file.name}`**"
    count = (
        f"{short_text.lines:,} of {short_text.all_lines:,} lines"
        if short_text.lines < short_text.all_lines
        else ""
    )
    about = ", ".join(filter(None, (file.about, count)))
    return f"{name} ({about})" if about else name


def _differences_that_fix_example(before: Example, after: Example) -> str:
    """What to use instead: differences to files of the same name, new files whole, and what is
    gone.
    """
    was = {file.name: file for file in before.files}
    changed = [file for file in after.files if file != was.get(file.name)]
    parts = [_shown_change(was.get(file.name), file) for file in changed]
    unchanged = [file for file in after.files if file == was.get(file.name)]
    if unchanged and changed:
        parts.append(f"Unchanged: {_joined_names(unchanged)}.")
    parts += _paragraph(_sentences_on_files_gone(before, after))
    parts += _paragraph(note for note in after.notes if note not in before.notes)
    return "\n\n".join(parts)


def _sentences_on_files_gone(before: Example, after: Example) -> Iterator[str]:
    """What becomes of files and edits that the fix does not have."""
    names = {file.name for file in after.files}
    gone = [file for file in before.files if file.name not in names and not file.is_edit]
    if gone:
        yield f"Without {_joined_names(gone)}."
    restored = [f"`{name}`" for name in before.edited if name not in after.edited]
    if restored:
        ending = "as it was published" if len(restored) == 1 else "as they were published"
        yield f"With {' and '.join(restored)} {ending}."


def _joined_names(files: list[ExampleFile]) -> str:
    names = [file.name if file.is_measured else f"`{file.name}`" for file in files]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _shown_change(was: ExampleFile | None, now: ExampleFile) -> str:
    if was is None:
        return _shown_file(now)
    old, new = was.text.splitlines(), now.text.splitlines()
    if was.records_to_show and len(old) == len(new) <= MAX_RECORDS:
        return _changed_file(now, _differing_rows(old, new))
    if not _is_difference_easier_than_new_lines(old, new):
        return _shown_file(now)
    is_whole = max(len(old), len(new)) <= MAX_LINES_AS_A_WHOLE
    context = max(len(old), len(new)) if is_whole else LINES_AROUND_CHANGE
    # The first two lines name the files, which the caption does.
    lines = list(unified_diff(old, new, n=context, lineterm=""))[2:]
    return _changed_file(now, lines[1:] if is_whole else lines)


def _is_difference_easier_than_new_lines(old: list[str], new: list[str]) -> bool:
    """Is a difference between these lines easier to read than the new ones alone?"""
    if max(len(old), len(new)) <= MAX_LINES_ALWAYS_COMPARED:
        return True
    # By lines, and not by characters, of which two unrelated scripts have most in common too.
    return SequenceMatcher(None, old, new, autojunk=False).ratio() >= MIN_COMMON_SHARE


def _differing_rows(old: list[str], new: list[str]) -> list[str]:
    """A difference row by row: row 3 is the corrected row 3, whatever other rows it equals."""
    lines: list[str] = []
    for before, after in zip(old, new, strict=True):
        lines += [f" {before}"] if before == after else [f"-{before}", f"+{after}"]
    return lines


def _changed_file(now: ExampleFile, lines: list[str]) -> str:
    short_text = shorten_text("\n".join(lines), now.records_to_show)
    return f"{_caption(now, short_text)}\n\n{fenced(short_text.text, 'diff')}"
