"""What truetune prints for the example of each rule's page, kept for the site.

`python -m tests.rule_findings` writes docs/_findings: a file for each family, with the text of the
first finding by rule. The site is built without torch or a trainer, so it can't judge the examples
of rules on runs itself. `tests/checks/test_pages.py`, which judges each example, holds every text
to what is printed today.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.checks.pages import run, sections
from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import AUDIT, STATIONS, all_rules, station_of_rule
from truetune.report.report_terminal import finding_as_text

FOLDER = Path(__file__).parents[1] / "docs" / "_findings"
COLUMNS = 84
"""Of a code block on a page of the site"""
OF_TIME_LIMITS = ("reward-hangs",)
"""Rules whose example meets a time limit: on a busy machine, a shorter text meets it first"""
_FIRST_PLACE_OR_NOTE = re.compile(r"^ +(?:-->|[|=]) ", re.MULTILINE)
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_FORMS_OF_DATES = ("%d %b %Y", "%d %B %Y", "%Y-%m-%d")
"""In which examples write the day on which they are judged"""
_NUMBER = re.compile(r"\d[\d,.]*(?:e[+-]?\d+)?")


def printed_finding(findings: tuple[Finding, ...], folder: Path) -> str:
    """The first finding as it is printed where the example lies in the working folder."""
    shown = _in_working_folder(findings[0], folder)
    return _with_fixed_times(finding_as_text(shown, COLUMNS).rstrip() + "\n")


def _with_fixed_times(text: str) -> str:
    """The text with dates and times that stay the same tomorrow, in the order of those that it has."""
    today = datetime.date.today()
    for form in _FORMS_OF_DATES:
        text = text.replace(today.strftime(form), datetime.date(2026, 1, 1).strftime(form))
    for number, time in enumerate(sorted(set(_TIME.findall(text)))):
        text = text.replace(time, f"2026-01-01 {10 + number}:00")
    return text


def _in_working_folder(value: Any, folder: Path) -> Any:
    """A record whose texts name files from the working folder: a longer path would move the ends of
    lines.
    """
    if isinstance(value, str):
        return value.replace(f"{folder}/", "").replace(str(folder), ".")
    if isinstance(value, tuple):
        items = (_in_working_folder(item, folder) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if is_dataclass(value) and not isinstance(value, type):
        texts = {
            part.name: _in_working_folder(getattr(value, part.name), folder)
            for part in fields(value)
            if part.init
        }
        return replace(value, **texts)
    return value


@cache
def kept_findings(station: str) -> dict[str, list[str]]:
    """The lines that are kept for a family, by the names of its rules."""
    path = FOLDER / f"{station}.json"
    kept: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    return kept


def is_as_kept(rule: type[Rule[Any]], printed: str) -> bool:
    """Is this what is kept for a rule? The figures and answers of real runs depend on the machine."""
    station = station_of_rule(rule)
    kept = "\n".join(kept_findings(station).get(rule.name(), [])) + "\n"
    if station in AUDIT or rule.name() in OF_TIME_LIMITS:
        return _heading_without_figures(kept) == _heading_without_figures(printed)
    return kept == printed


def _heading_without_figures(text: str) -> str:
    heading = _FIRST_PLACE_OR_NOTE.split(text, maxsplit=1)[0]
    # A figure of another length moves the ends of the lines.
    return " ".join(_NUMBER.sub("#", heading).split())


def _judged(rule: type[Rule[Any]]) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "example"
        findings = run(rule, sections(rule)["Example"], folder)
        return printed_finding(findings, folder).splitlines()


def write_findings(station: str) -> None:
    """Judge the examples of a family's rules, and write the file of their findings."""
    FOLDER.mkdir(exist_ok=True)
    kept = {rule.name(): _judged(rule) for rule in all_rules(station)}
    text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    (FOLDER / f"{station}.json").write_text(text, encoding="utf-8")


def main(stations: list[str]) -> None:
    """Write the files of these families; of all where none is named."""
    if len(stations) == 1:
        write_findings(stations[0])
        return
    for station in stations or STATIONS:
        # A process for each family: real trainers leave hooks in torch, which a later rehearsal
        # runs into.
        subprocess.run([sys.executable, "-m", "tests.rule_findings", station], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
