"""The laws on a correct trainer and on a broken one: the table of docs/laws.md.

python -m bench.laws            measure each law on the two runs of its rule's page, and print the table
python -m bench.laws --write    and write it into docs/laws.md

The broken run is the page's Example, the clean one its Use instead: real trainers of transformers, TRL and peft over
models of two layers and width 32, in float32 unless the page says otherwise. The margin of a clean run is how many
times its value fits into the tolerance; that of a broken run how many times the tolerance fits into its value.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "laws.md"
MARK = "<!-- law table -->"
"""Stands before and behind the table"""


@dataclass(frozen=True)
class Line:
    """One rule on a law."""

    law: str
    rule: str
    tolerance: float
    clean: float | None
    """None where the clean run leaves nothing to be tested"""
    broken: float
    seconds: float
    """To measure the law on the broken run"""


def lines() -> list[Line]:
    """Each rule's law on the two runs of its page. Raises SystemExit where one could not be tested."""
    from tests.checks.pages import block, sections
    from truetune.checks.rule import LawRule
    from truetune.checks.rule_catalogue import all_rules

    found = []
    for rule in all_rules():
        if issubclass(rule, LawRule):
            page = sections(rule)
            broken, clean = (
                _measured(rule.law, block(page[name])) for name in ("Example", "Use instead")
            )
            if "untested" in broken:
                raise SystemExit(f"{rule.law}: {broken['untested']}")
            value = clean.get("value")
            found.append(
                Line(
                    rule.law,
                    rule.name(),
                    broken["tolerance"],
                    value,
                    broken["value"],
                    broken["seconds"],
                )
            )
    return sorted(found, key=lambda line: (line.law, line.rule))


def _measured(law: str, text: str) -> dict[str, Any]:
    from tests.checks.pages.batch import run
    from truetune.auditing.record_trainer_run_in_this_process import record_run

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        names = run(text)
        asked: dict[str, Any] = {name: names.get(name) for name in ("loss", "given")}
        tokenizer = None if hasattr(names["run"], "args") else names["tokenizer"]
        record = record_run(
            names["run"], names.get("loader"), tokenizer, batches=8, laws=[law], **asked
        )
    return dict(record.facts["laws"][law])


def table(found: list[Line]) -> str:
    """The lines as a table."""
    rows = [
        "| law | rule | tolerance | clean | margin | broken | margin | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in found:
        clean = f"{line.clean:.2g}" if line.clean is not None else "untested"
        kept = _times(line.tolerance, line.clean) if line.clean is not None else ""
        far = _times(line.broken, line.tolerance)
        cells = (
            line.law,
            line.rule,
            f"{line.tolerance:.2g}",
            clean,
            kept,
            f"{line.broken:.2g}",
            far,
            f"{line.seconds:.2f}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _times(a: float, b: float) -> str:
    """How many times `b` fits into `a`."""
    if b == 0:
        return "exact"
    return (
        f"{a / b:.2g}"
        if math.isfinite(a / b) and a / b < 1000
        else f"{a / b:.0e}"
        if math.isfinite(a / b)
        else "∞"
    )


def write(text: str, path: Path = PAGE) -> None:
    """Put the table between its marks. Raises SystemExit where the page does not have two."""
    parts = path.read_text(encoding="utf-8").split(MARK)
    if len(parts) != 3:
        raise SystemExit(
            f"{path}: expected {MARK} before and behind the table, found it {len(parts) - 1} times"
        )
    path.write_text(f"{parts[0]}{MARK}\n{text}\n{MARK}{parts[2]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure each law on a correct trainer and on a broken one."
    )
    parser.add_argument("--write", action="store_true", help="write the table into docs/laws.md")
    options = parser.parse_args()
    text = table(lines())
    print(text)
    if options.write:
        write(text)


if __name__ == "__main__":
    main()
