"""What was measured, kept in results.json and drawn as the table of docs/recall.md."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from bench.recall.case import HERE, Case, Fault, cases, faults
from bench.recall.measure import Measured

RESULTS = HERE / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "recall.md"
BEGIN, END = "<!-- table -->", "<!-- /table -->"


def kept() -> dict[str, bool]:
    """Is the fault named, by the key of a case: as it was kept last."""
    if not RESULTS.exists():
        return {}
    stated: dict[str, bool] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return stated


def write(measured: Iterable[Measured]) -> None:
    """Keep results in the place of earlier ones of the same cases, and draw the table."""
    results = kept() | {one.case.key: one.is_named for one in measured}
    known = {case.key for case in cases()}
    stated = {key: named for key, named in sorted(results.items()) if key in known}
    RESULTS.write_text(json.dumps(stated, indent=1) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


def table() -> str:
    """The faults, each with the share of its faulty cases that are named, and of healthy ones that are."""
    results = kept()
    lines = [
        "| fault | named | of those held back | look-alikes accused | not named |",
        "| --- | --- | --- | --- | --- |",
        *(_line(fault, results) for fault in faults()),
    ]
    faulty = [case for case in cases() if case.is_faulty]
    healthy = [case for case in cases() if not case.is_faulty]
    held = [case for case in faulty if case.was_held_back]
    total = (
        f"| **all** | **{_share(faulty, results)}** | **{_share(held, results)}** |"
        f" **{_share(healthy, results)}** | |"
    )
    return "\n".join([*lines, total])


def _line(fault: Fault, results: dict[str, bool]) -> str:
    """One fault's row of the table."""
    own = [case for case in cases() if case.fault == fault]
    faulty = [case for case in own if case.is_faulty]
    healthy = [case for case in own if not case.is_faulty]
    held = [case for case in faulty if case.was_held_back]
    missed = [case.name for case in faulty if not results.get(case.key)]
    return (
        f"| {fault.title} | {_share(faulty, results)} | {_share(held, results)} |"
        f" {_share(healthy, results)} | {', '.join(missed)} |"
    )


def _share(chosen: list[Case], results: dict[str, bool]) -> str:
    """How many of these cases are named, as "3 of 6"."""
    return f"{sum(results.get(case.key, False) for case in chosen)} of {len(chosen)}"
