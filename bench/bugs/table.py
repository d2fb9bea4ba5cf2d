"""Results: kept as JSON, and drawn as the tables of docs/bugs.md."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from bench.bugs import healthy, peers
from bench.bugs.case import STAGES, Case, cases
from bench.bugs.run import Trial

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "bugs.md"
Result = list[Trial] | list[peers.Try] | list[healthy.Example]


def keep(name: str, result: Result) -> None:
    """Put a result in the place of what was kept of the same cases, and draw docs/bugs.md anew."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    kept = {
        _key(entry): entry
        for entry in (json.loads(path.read_text("utf-8")) if path.exists() else [])
    }
    kept |= {
        _key(entry): entry for entry in json.loads(json.dumps([asdict(one) for one in result]))
    }
    known = {case.name for case in cases()}
    entries = [
        entry for _, entry in sorted(kept.items()) if entry.get("case", next(iter(known))) in known
    ]
    path.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    draw()


def draw() -> None:
    """Write every table between its markers in docs/bugs.md."""
    tables = {"summary": summary, "cases": listing, "peers": rivals, "healthy": remarks}
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        text = f"{before}{begin}{table()}\n{end}{after}"
    PAGE.write_text(text, encoding="utf-8")


def drawn(name: str, result: Result) -> str:
    """The end of what a run prints."""
    if name == "truetune":
        entries = [asdict(one) for one in result]
        verdicts = Counter(entry["verdict"] for entry in entries)
        alarms = sum(bool(entry["alarms"]) for entry in entries)
        return (
            ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
            + f", {alarms} false alarms"
        )
    if name == "peers":
        return _rivals([asdict(one) for one in result])
    remarks = [remark for one in result for remark in getattr(one, "remarks", ())]
    return f"{len(result)} examples, {len(remarks)} findings"


def summary() -> str:
    """By stage."""
    stages = defaultdict(list)
    for entry in _kept("truetune"):
        if entry["verdict"] != "skipped":
            stages[_case(entry).stage].append(entry)
    head = (
        "stage",
        "cases",
        "trials",
        "found by the right rule",
        "by another",
        "missed",
        "false alarms",
        "median s",
    )
    lines = [_counted(stage, stages[stage]) for stage in STAGES if stage in stages]
    return _table(
        head, [*lines, _counted("**all**", [entry for stage in stages.values() for entry in stage])]
    )


def listing() -> str:
    """Every case."""
    trials = defaultdict(list)
    for entry in _kept("truetune"):
        trials[entry["case"]].append(entry)
    lines = []
    for stage in STAGES:
        for case in (case for case in cases() if case.stage == stage):
            tried = trials[case.name]
            said = sorted({rule for entry in tried for rule in entry["by"]})
            found = sum(entry["verdict"] == "found" for entry in tried)
            verdict = (
                "found"
                if found == len(tried)
                else f"{found} of {len(tried)}"
                if found
                else _verdict(tried)
            )
            lines.append((stage, _linked(case), case.fault, case.entry, verdict, ", ".join(said)))
    return _table(("stage", "case", "fault", "known as", "verdict", "by"), lines)


def rivals() -> str:
    """The peers beside truetune, each on the cases that it claims."""
    return _rivals(_kept("peers"))


def remarks() -> str:
    """What was said of the examples of others."""
    lines, examples = (
        [],
        [healthy.Example(**entry | {"remarks": _remarks(entry)}) for entry in _kept("healthy")],
    )
    for example in examples:
        for remark in example.remarks:
            judged = healthy.judgement(example, remark)
            verdict = "not judged" if judged is None else "true" if judged["right"] else "**false**"
            because = "" if judged is None else judged["because"]
            lines.append(
                (
                    f"{example.package}: {example.file}",
                    remark.severity,
                    remark.rule,
                    verdict,
                    because,
                )
            )
    said = Counter(line[3] for line in lines)
    count = f"{len(examples)} files, {sum(bool(e.remarks) for e in examples)} with findings: "
    count += ", ".join(f"{number} {verdict}" for verdict, number in said.most_common()) or "none"
    groups = Counter((*line[1:], line[0].split(":")[0]) for line in lines)
    first = {(*line[1:], line[0].split(":")[0]): line[0] for line in reversed(lines)}
    rows = [
        (first[key], str(number), *key[:4])
        for key, number in sorted(groups.items(), key=lambda g: g[0][1])
    ]
    return f"{count}.\n\n" + _table(
        ("first seen in", "times", "severity", "rule", "judged", "why"), rows
    )


def _rivals(entries: Sequence[dict[str, Any]]) -> str:
    ours = {(entry["case"], entry["family"]): entry for entry in _kept("truetune")}
    by_peer = defaultdict(list)
    for entry in entries:
        by_peer[entry["peer"]].append(entry)
    lines = []
    for peer, told in peers.peers().items():
        if "because" in told:
            lines.append(
                (f"{peer} {told['version']}", "none", "", "", "", "", f"{told['because']}")
            )
        elif tried := by_peer.get(peer):
            same = [
                ours[key] for entry in tried if (key := (entry["case"], entry["family"])) in ours
            ]
            found = sum(bool(entry["found"]) for entry in tried)
            failed = sum(bool(entry["note"]) for entry in tried)
            alarms = sum(bool(entry["alarms"]) for entry in tried)
            we = sum(entry["verdict"] == "found" for entry in same)
            seconds = f"{median(entry['seconds'] for entry in tried):.1f}"
            note = f"{failed} ended in a traceback" if failed else ""
            lines.append(
                (
                    f"{peer} {told['version']}",
                    str(len(tried)),
                    str(found),
                    str(we),
                    str(alarms),
                    seconds,
                    note,
                )
            )
    head = (
        "peer",
        "trials it claims",
        "found",
        "truetune on the same",
        "false alarms",
        "median s",
        "",
    )
    return _table(head, lines)


def _counted(stage: str, entries: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    verdicts = Counter(entry["verdict"] for entry in entries)
    missed = verdicts["missed"] + verdicts["failed"]
    alarms = sum(bool(entry["alarms"]) for entry in entries)
    numbers = (
        len({e["case"] for e in entries}),
        len(entries),
        verdicts["found"],
        verdicts["other rule"],
        missed,
        alarms,
    )
    return (stage, *map(str, numbers), f"{median(entry['seconds'] for entry in entries):.1f}")


def _verdict(tried: Sequence[dict[str, Any]]) -> str:
    return tried[0]["verdict"] if tried else "not run"


def _linked(case: Case) -> str:
    return f"[{case.name}](../bench/bugs/cases/{case.name}/case.yaml)"


def _remarks(entry: dict[str, Any]) -> tuple[healthy.Remark, ...]:
    return tuple(healthy.Remark(**remark) for remark in entry["remarks"])


def _kept(name: str) -> list[dict[str, Any]]:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def _case(entry: dict[str, Any]) -> Case:
    return next(case for case in cases() if case.name == entry["case"])


def _key(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(entry.get(name)) for name in ("peer", "case", "family", "package", "file"))


def _table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    head = tuple(head)
    rows = [
        " | ".join(cell.replace("|", "\\|") for cell in line)
        for line in (head, ("---",) * len(head), *lines)
    ]
    return "\n".join(f"| {row} |" for row in rows)
