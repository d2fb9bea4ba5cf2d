"""`python -m bench.recall`: how many ways of writing each fault are named, and which look-alikes are accused."""

from __future__ import annotations

import argparse
import os
import sys
from fnmatch import fnmatchcase


def main() -> None:
    """Measure what is asked for. Exits with 1 where a case that was right before is wrong now."""
    parser = argparse.ArgumentParser(prog="python -m bench.recall", description=__doc__)
    parser.add_argument(
        "cases",
        nargs="*",
        default=["*"],
        help="FAULT, FAULT/CASE or patterns of them; all when none is given",
    )
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    parser.add_argument(
        "--write", action="store_true", help="keep the results, and write docs/recall.md"
    )
    arguments = parser.parse_args()

    from bench.recall import page
    from bench.recall.case import cases
    from bench.recall.measure import measure

    chosen = [
        case
        for case in cases()
        if any(
            fnmatchcase(case.key, pattern) or case.fault.id == pattern
            for pattern in arguments.cases
        )
    ]
    before = page.kept()
    measured = []
    for one in measure(chosen, arguments.jobs):
        measured.append(one)
        verdict = "right" if one.is_right else "missed" if one.case.is_faulty else "FALSE ALARM"
        print(
            f"{verdict:11} {one.case.key}: {', '.join(one.findings) or 'no findings'}", flush=True
        )
    faulty = [one for one in measured if one.case.is_faulty]
    healthy = [one for one in measured if not one.case.is_faulty]
    print(
        f"{sum(one.is_named for one in faulty)} of {len(faulty)} faulty cases are named,"
        f" {sum(one.is_named for one in healthy)} of {len(healthy)} healthy ones accused"
    )
    lost = [
        one.case.key
        for one in measured
        if not one.is_right and before.get(one.case.key) == one.case.is_faulty
    ]
    if lost:
        print(f"right before: {', '.join(lost)}", file=sys.stderr)
    if arguments.write:
        page.write(measured)
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
