"""What `truetune fix` has changed, or would change, for a terminal and for programs.

Changes are counted by rule and not listed row by row: the rows are in the file of changes, whose name is printed.
What could not be fixed has its reason, and the check of the written file is the next command.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console

from truetune.checks.rule_catalogue import find_rule
from truetune.fixing.fix_file import Fixed
from truetune.report.visible_text import clip_text, count_noun, escape_invisible_characters
from truetune.settings.run_spec import RunSpec

# Chosen, not measured: a first fix of a large file leaves dozens of findings, and the line on
# what to do next should still be on the screen.
MAX_ENTRIES = 8
"""Entries of a list that are shown"""


def render_fix_result(
    fixed: Fixed, console: Console, spec: RunSpec, *, dry_run: bool = False
) -> None:
    """Draw what was changed by rule, what is left and why, and what to do next.

    Args:
        fixed: what `truetune fix` did.
        console: where it is drawn.
        spec: the settings of the fix, whose tokenizer the next command names.
        dry_run: nothing was written (--diff), so that sentences say "would".
    """
    _print_clipped_line(console, _headline_of_changes(fixed, dry_run=dry_run))
    _print_change_counts(console, fixed.changed)
    if fixed.left:
        _print_unfixed(console, fixed)
    if fixed.offered:
        _print_clipped_line(console, "with --unsafe, which may change what rows mean:")
        _print_change_counts(console, fixed.offered)
    # A rule that is listed below with its own reason is not named here as well.
    listed = {part.what for part in fixed.not_judged}
    waiting = [rule for rule in fixed.waiting_for_tokenizer if rule not in listed]
    if waiting:
        rules = ", ".join(waiting)
        _print_clipped_line(console, f"not judged without a tokenizer (name it with -t): {rules}")
    for part in fixed.not_judged:
        _print_clipped_line(console, f"not judged: {part}")
    if fixed.output is not None:
        _print_clipped_line(console, f"each change: {fixed.changes}")
        _print_clipped_line(console, f"next: {_next_command(fixed, spec)}")


def _print_unfixed(console: Console, fixed: Fixed) -> None:
    """Print the findings that no fix takes away, each with its reason."""
    _print_clipped_line(console, f"left for you: {count_noun(len(fixed.left), 'finding')}")
    for left in fixed.left[:MAX_ENTRIES]:
        # Some messages begin with their first place, and would name it twice.
        at = f" (first: {left.first})" if left.first and left.first not in left.message else ""
        _print_clipped_line(console, f"  {_rule_with_code(left.rule)}: {left.message}{at}")
        _print_clipped_line(console, f"    {left.why}")
    if len(fixed.left) > MAX_ENTRIES:
        _print_clipped_line(
            console, f"  and {len(fixed.left) - MAX_ENTRIES:,} more; --json has all"
        )


def _headline_of_changes(fixed: Fixed, *, dry_run: bool) -> str:
    """How many rows were changed and dropped, of which file."""
    # With --diff nothing was written: the line names what was read.
    where = fixed.data if fixed.output is None else fixed.output
    changed = (
        f"{fixed.changed_rows:,} of {count_noun(fixed.rows, 'row')}"
        f" {'would change' if dry_run else 'changed'}"
    )
    dropped = f", {fixed.dropped_rows:,} {'would be dropped' if dry_run else 'dropped'}"
    return f"{where}: {changed}{dropped if fixed.dropped_rows else ''}"


def _print_change_counts(console: Console, counts: Mapping[tuple[str, str], int]) -> None:
    """Print a line for each kind of change of each rule, with how many rows it changed."""
    for (rule, what), rows in counts.items():
        _print_clipped_line(
            console, f"  {_rule_with_code(rule)}: {count_noun(rows, 'row')}: {what}"
        )


def _rule_with_code(rule: str) -> str:
    """A rule's name with its code in front: `ROW003 turn-roles-unknown-to-template`"""
    return f"{find_rule(rule).code} {rule}"


def _next_command(fixed: Fixed, spec: RunSpec) -> str:
    """The command to run next: a check of what was written."""
    # A rule may wait for a tokenizer only because none was named, so the next command names
    # one, or a place for it.
    tokenizer = spec.tokenizer or spec.model
    words = ["truetune", "check", str(fixed.output), *(("-t", tokenizer) if tokenizer else ())]
    return shlex.join(words) + ("" if tokenizer else " -t TOKENIZER")


def _print_clipped_line(console: Console, line: str) -> None:
    """Print one line, clipped where it is long, with numbers and paths in colour on a terminal."""
    # Clipped: a finding's message may quote a whole row.
    console.print(escape_invisible_characters(clip_text(line)), soft_wrap=True)


def fix_result_json(fixed: Fixed) -> dict[str, Any]:
    """What `truetune fix` did, as plain values."""
    values = {
        "data": fixed.data, "output": fixed.output, "changes": fixed.changes, "rows": fixed.rows,
        "changed_rows": fixed.changed_rows, "dropped_rows": fixed.dropped_rows,
        "changed": _change_counts_json(fixed.changed), "left": [asdict(left) for left in fixed.left],
        "unsafe": _change_counts_json(fixed.offered), "judged_with_tokenizer": fixed.judged_with_tokenizer,
        "waiting_for_tokenizer": list(fixed.waiting_for_tokenizer),
        "not_judged": [asdict(part) for part in fixed.not_judged],
    }  # fmt: skip
    return values if fixed.diff is None else {**values, "diff": fixed.diff}


def _change_counts_json(counts: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Counts of changed rows by rule and kind of change, as JSON."""
    return [{"rule": rule, "change": what, "rows": rows} for (rule, what), rows in counts.items()]
