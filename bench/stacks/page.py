"""The results as data, and the tables of docs/compared-with-stacks.md written from them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from bench.bugs.case import Case, cases
from bench.stacks.declared import stacks
from bench.stacks.judgements import (
    is_comparable,
    judgements,
    line_that_names_the_bug,
    names_the_bug,
)
from bench.stacks.run_cases import StackResult

RESULTS = Path(__file__).with_name("results")
"""One file for each stack, so that stacks can be run at once"""
TRUETUNE_RESULTS = Path(__file__).parents[1] / "bugs" / "results" / "truetune.json"
PAGE = Path(__file__).parents[2] / "docs" / "compared-with-stacks.md"
README = Path(__file__).parents[2] / "README.md"
MAX_QUOTED_CHARACTERS = 220
_LOG_HEAD = re.compile(r"^(?:\[[^\]]*\] ?)+(?:[\w.]+:\d+ >> )?(?:\d{4}-\d\d-\d\d \S+ >> )?")


def format_result(result: StackResult) -> str:
    """One line for the terminal.

    Args:
        result: What was said about a case.

    Returns:
        The exit codes, and the words.
    """
    codes = f"{result.broken_exit_code}/{result.clean_exit_code}"
    words = "".join(f"\n    {message}" for message in result.messages)
    clean = f"\n    CLEAN: {result.clean_error}" if result.clean_error else ""
    return f"{result.stack} {codes} {result.case}{words}{clean}"


def write_result(result: StackResult) -> None:
    """Put a result in the place of an older one of the same stack and case.

    Args:
        result: What was measured now.
    """
    kept = {older.case: older for older in read_results(result.stack)}
    kept[result.case] = result
    entries = [asdict(entry) for _, entry in sorted(kept.items())]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{result.stack}.json"
    path.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def read_results(stack: str) -> list[StackResult]:
    """What was kept of a stack.

    Args:
        stack: Its name.

    Returns:
        The results by case; none where the stack was never run.
    """
    path = RESULTS / f"{stack}.json"
    if not path.exists():
        return []
    return [_result(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def read_truetune_result(case: str) -> dict[str, Any]:
    """What the bug bench kept about truetune on a case.

    Args:
        case: Its name.

    Returns:
        The entry of the tokenizer that the stacks had.

    Raises:
        KeyError: truetune was not run on the case.
    """
    return _truetune_results()[case, next(iter(_case(case).families), None)]


def write_pages() -> None:
    """Write every table between its markers in docs/compared-with-stacks.md and README.md."""
    for path in (PAGE, README):
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(text: str) -> str:
    """A page with the tables of the kept results.

    Args:
        text: The page as it is.

    Returns:
        The page as it should be.
    """
    tables = {
        "stacks-in-short": summary_in_short(),
        "stacks-summary": summary(),
        "stacks-cases": _all_cases(),
        "stacks-not-run": _not_run(),
    }
    for name, table in tables.items():
        if f"<!-- {name} -->" not in text:
            continue
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        text = f"{before}{begin}{table}\n{end}{after}"
    return text


def summary() -> str:
    """A line for each stack: how many bugs it names, and how many truetune finds in the same cases."""
    head = ("stack", "cases", "it names the bug", "of them, it ends the run", "truetune finds")
    rows = [_summary_row(kept) for name in stacks() if (kept := _comparable(name))]
    return _table(head, rows)


def summary_in_short() -> str:
    """The same in three columns, for the README."""
    rows = []
    for name in stacks():
        if kept := _comparable(name):
            stack, cases_run, named, _, found = _summary_row(kept)
            rows.append((stack, f"{named} of {cases_run}", found))
    return _table(("framework", "bugs named in its output", "truetune found"), rows)


def _summary_row(kept: Sequence[StackResult]) -> tuple[str, ...]:
    named = [result for result in kept if names_the_bug(result)]
    ended = sum(result.broken_exit_code != 0 for result in named)
    found = sum(read_truetune_result(result.case)["verdict"] == "found" for result in kept)
    stack = f"{kept[0].stack} {kept[0].version}"
    return (stack, str(len(kept)), str(len(named)), str(ended), str(found))


def _all_cases() -> str:
    parts = []
    for name in stacks():
        if kept := _comparable(name):
            head = ("bug", "case", f"what {name} says", "what truetune says")
            rows = [_case_row(result) for result in kept]
            parts.append(f"### {name} {kept[0].version}\n\n{_table(head, rows)}")
    return "\n\n".join(parts)


def _case_row(result: StackResult) -> tuple[str, ...]:
    said = "nothing"
    if names_the_bug(result):
        said = f"**found**: {_quote(line_that_names_the_bug(result))}"
    elif result.messages:
        said = f"nothing of it; {_quote(result.messages[0])}"
    entry = read_truetune_result(result.case)
    rules = ", ".join(f"`{rule}`" for rule in entry["by"])
    ours = f"**found**: {rules}" if entry["verdict"] == "found" else rules or "nothing"
    return (_case(result.case).fault, result.case, said, ours)


def _not_run() -> str:
    rows = [
        (result.stack, result.case, _why_not(result))
        for name in stacks()
        for result in read_results(name)
        if not is_comparable(result)
    ]
    return _table(("stack", "case", "why"), rows)


def _why_not(result: StackResult) -> str:
    if result.clean_exit_code:
        return f"the clean copy ends with {_quote(result.clean_error)}"
    return judgements()[result.stack, result.case].because


def _comparable(stack: str) -> list[StackResult]:
    return [result for result in read_results(stack) if is_comparable(result)]


def _quote(line: str) -> str:
    """A line as the table shows it: without its time and place, and not too long."""
    text = _LOG_HEAD.sub("", line).replace("|", "\\|").replace("`", "'")
    short = text if len(text) <= MAX_QUOTED_CHARACTERS else f"{text[:MAX_QUOTED_CHARACTERS]}..."
    return f"`{short}`"


def _case(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


@cache
def _truetune_results() -> dict[tuple[str, str | None], dict[str, Any]]:
    entries = json.loads(TRUETUNE_RESULTS.read_text(encoding="utf-8"))
    return {(entry["case"], entry["family"]): entry for entry in entries}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _result(entry: dict[str, Any]) -> StackResult:
    return StackResult(**{**entry, "messages": tuple(entry["messages"])})
