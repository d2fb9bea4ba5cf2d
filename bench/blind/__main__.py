"""`python -m bench.blind`: which faults of a blind round are named, and what is said where nothing is wrong."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from pathlib import Path

from bench.blind import round as rounds
from bench.blind.measure import MeasuredCase, measure_cases


def main() -> None:
    """Seal a round, or run one."""
    parser = argparse.ArgumentParser(prog="python -m bench.blind", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    seal = commands.add_parser("seal", help="keep the cases that writers wrote")
    seal.add_argument("number", type=int)
    seal.add_argument("written", type=Path, help="folder with WRITER/caseNN/...")
    run = commands.add_parser("run", help="run a round's cases as they are judged today")
    run.add_argument("number", type=int)
    run.add_argument("cases", nargs="*", help="names of cases; all when none is given")
    run.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    run.add_argument("--outputs", type=Path, help="folder for what the commands print")
    arguments = parser.parse_args()
    if arguments.command == "seal":
        print(rounds.seal_round(arguments.number, arguments.written, rounds.place_of_parts()))
        return
    _run(arguments.number, arguments.cases, arguments.jobs, arguments.outputs)


def _run(number: int, names: list[str], jobs: int, outputs: Path | None) -> None:
    cases = [case for case in rounds.read_cases(number) if not names or case.name in names]
    with tempfile.TemporaryDirectory(prefix="blind-") as scratch:
        rounds.unpack_round(number, Path(scratch))
        measured = []
        for one in measure_cases(cases, Path(scratch), jobs):
            measured.append(one)
            print(_line(one), flush=True)
            if outputs is not None:
                _keep_outputs(one, outputs)
    _print_table(measured)


def _line(one: MeasuredCase) -> str:
    if one.twin is None:
        return f"healthy  {one.case.name}: {', '.join(one.alarms) or 'no findings'}"
    verdict = "named" if one.is_named else "missed"
    found = ", ".join(one.output.findings) or "no findings"
    return f"{verdict:8} {one.case.name}: {found}; twin: {', '.join(one.alarms) or 'no findings'}"


def _keep_outputs(one: MeasuredCase, folder: Path) -> None:
    name = one.case.name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.txt").write_text(one.output.text, encoding="utf-8")
    if one.twin is not None:
        (folder / f"{name}-twin.txt").write_text(one.twin.text, encoding="utf-8")


def _print_table(measured: list[MeasuredCase]) -> None:
    counted = [one for one in measured if not one.case.disputed]
    faulty = [one for one in counted if one.case.is_faulty]
    named = Counter(one.case.station for one in faulty if one.is_named)
    print()
    for station, count in Counter(one.case.station for one in faulty).items():
        print(f"{station:9} {named[station]} of {count} named")
    print(f"all       {named.total()} of {len(faulty)} named")
    accused = sum(bool(one.alarms) for one in counted)
    print(f"{accused} of {len(counted)} twins and healthy set-ups have findings: to be judged")


if __name__ == "__main__":
    main()
