"""The figures as tables, and their place in docs/bench.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.precision.judged import KINDS, VERDICTS, JudgedFinding, State, Verdict, findings, silent_files

PAGE = Path(__file__).parents[2] / "docs" / "bench.md"
BEGIN, END = "<!-- precision -->\n", "<!-- /precision -->"


def tables() -> str:
    """Both tables and the sentence on silent files, as they stand in docs/bench.md."""
    judged = findings()
    return "\n".join((_by_kind(judged), _by_rule(judged), _silence()))


def by_rule(judged: Iterable[JudgedFinding]) -> dict[str, Counter[Verdict]]:
    """How often each verdict was given, by rule."""
    counts: dict[str, Counter[Verdict]] = {}
    for finding in judged:
        counts.setdefault(finding.rule, Counter())[finding.verdict] += 1
    return counts


def section_of(text: str) -> str:
    """What a page holds between the markers."""
    _, _, rest = text.partition(BEGIN)
    inside, _, _ = rest.partition(END)
    return inside


def write_page() -> None:
    """Put the tables between the markers of docs/bench.md."""
    before, begin, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    PAGE.write_text(f"{before}{begin}{tables()}{end}{after}", encoding="utf-8")


def _by_kind(judged: Sequence[JudgedFinding]) -> str:
    lines = [
        "| kind | findings | true | pedantic | false | reported as before | otherwise |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines.extend(_kind_line(kind, [finding for finding in judged if finding.kind == kind]) for kind in KINDS)
    lines.append(_kind_line("all", judged))
    return "\n".join(lines) + "\n"


def _kind_line(name: str, judged: Sequence[JudgedFinding]) -> str:
    shares = [_share(sum(finding.verdict == verdict for finding in judged), len(judged)) for verdict in VERDICTS]
    return f"| {name} | {len(judged)} | {' | '.join(shares)} | {_left(judged, 'same')} | {_left(judged, 'changed')} |"


def _left(judged: Iterable[JudgedFinding], state: State) -> str:
    """How many of each verdict are in that state now: true / pedantic / false."""
    counts = Counter(finding.verdict for finding in judged if finding.now == state)
    return " / ".join(str(counts[verdict]) for verdict in VERDICTS)


def _by_rule(judged: Sequence[JudgedFinding]) -> str:
    lines = ["| rule | true | pedantic | false | reported as before | otherwise |", "|---|---:|---:|---:|---:|---:|"]
    for rule, counts in sorted(by_rule(judged).items()):
        own = [finding for finding in judged if finding.rule == rule]
        figures = " | ".join(str(counts[verdict]) for verdict in VERDICTS)
        lines.append(f"| {rule} | {figures} | {_left(own, 'same')} | {_left(own, 'changed')} |")
    return "\n".join(lines) + "\n"


def _silence() -> str:
    files = silent_files()
    missed = [file for file in files if file.missed is not None]
    return f"Of {len(files)} files without a finding, {len(missed)} had a fault that should have been found.\n"


def _share(count: int, total: int) -> str:
    return f"{count} ({count / total:.0%})"
