"""Asks of each rule of source code whether it finds the example of its page in other forms.

How it works: the "Example" of a page is laid out as its tests do, with the files beside it, and rewritten; the rule
must find it. "Use instead" is rewritten likewise, and the rule must be silent. Only pages that work unchanged count.

The trade-off: the rule alone is asked, so a false alarm of another rule in the new form is not seen here.
"""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.forms.exceptions import reason_for_silence
from bench.forms.transforms import SCRIPT, Files, rewrite
from tests.checks.pages import block, sections
from tests.checks.pages.source import lay_out
from truetune.checks.lint import lint
from truetune.checks.rule import Rule


@dataclass(frozen=True, slots=True)
class Outcome:
    """A rule in a form."""

    rule: str
    forms: tuple[str, ...]
    finds: bool | None
    """Does it find the example? None where the form is no other program than that, or has nothing to rewrite"""
    false_alarm: bool | None
    """Does it speak of "Use instead"? None as above"""
    excused: str | None
    """Why it may be silent"""


def outcomes(
    rules: Iterable[type[Rule[object]]], forms: Iterable[tuple[str, ...]]
) -> Iterator[Outcome]:
    """Each rule in each form, or chain of forms."""
    chains = tuple(forms)
    for rule in rules:
        found = sections(rule)
        wrong, right = block(found["Example"]), block(found["Use instead"])
        # A page on what does not parse has no other form.
        if not _parses(wrong) or not _is_found(rule, wrong, {SCRIPT: wrong}):
            continue
        is_sound = not _is_found(rule, right, {SCRIPT: right})
        for chain in chains:
            yield Outcome(
                rule.name(),
                chain,
                _is_found(rule, wrong, rewrite(wrong, chain)),
                _is_found(rule, right, rewrite(right, chain)) if is_sound else None,
                reason_for_silence(rule.name(), chain),
            )


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _is_found(rule: type[Rule[object]], block_of_page: str, files: Files | None) -> bool | None:
    """Does the rule speak of these files, beside those that the block's comments stand for?"""
    if files is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / SCRIPT
        lay_out(block_of_page, script)
        script.unlink()
        for name, text in files.items():
            (script.parent / name).write_text(text, encoding="utf-8")
        report = lint([str(script.parent / name) for name in files], select=(rule.name(),))
    return bool(report.findings)
