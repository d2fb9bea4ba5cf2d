"""The figures as tables, and their place in docs/bench.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.precision.judged import (
    SETS,
    VERDICTS,
    JudgedFinding,
    JudgedSet,
    Kind,
    SilentFile,
    State,
    Verdict,
)

PAGE = Path(__file__).parents[2] / "docs" / "bench.md"


def tables(judged_set: JudgedSet) -> str:
    """Both tables of a set and the sentence on silent files, as they stand in docs/bench.md."""
    judged = judged_set.findings()
    return "\n".join(
        (_by_kind(judged, judged_set.kinds), _by_rule(judged), _silence(judged_set.silent_files()))
    )


def by_rule(judged: Iterable[JudgedFinding]) -> dict[str, Counter[Verdict]]:
    """How often each verdict was given, by rule."""
    counts: dict[str, Counter[Verdict]] = {}
    for finding in judged:
        counts.setdefault(finding.rule, Counter())[finding.verdict] += 1
    return counts


def section_of(text: str, judged_set: JudgedSet) -> str:
    """What a page holds between the markers of a set."""
    begin, end = _markers(judged_set)
    _, _, rest = text.partition(begin)
    inside, _, _ = rest.partition(end)
    return inside


def write_page() -> None:
    """Put the tables of every set between its markers in docs/bench.md."""
    text = PAGE.read_text("utf-8")
    for judged_set in SETS:
        begin, end = _markers(judged_set)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{tables(judged_set)}{end}{after}"
    PAGE.write_text(text, encoding="utf-8")


def _markers(judged_set: JudgedSet) -> tuple[str, str]:
    return f"<!-- {judged_set.marker} -->\n", f"<!-- /{judged_set.marker} -->"


def _by_kind(judged: Sequence[JudgedFinding], kinds: Sequence[Kind]) -> str:
    lines = [
        "| kind | findings | true | pedantic | false | reported as before | otherwise |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines.extend(
        _kind_line(kind, [finding for finding in judged if finding.kind == kind]) for kind in kinds
    )
    lines.append(_kind_line("all", judged))
    return "\n".join(lines) + "\n"


def _kind_line(name: str, judged: Sequence[JudgedFinding]) -> str:
    shares = [
        _share(sum(finding.verdict == verdict for finding in judged), len(judged))
        for verdict in VERDICTS
    ]
    return (
        f"| {name} | {len(judged)} | {' | '.join(shares)} | {_left(judged, 'same')} |"
        f" {_left(judged, 'changed')} |"
    )


def _left(judged: Iterable[JudgedFinding], state: State) -> str:
    """How many of each verdict are in that state now: true / pedantic / false."""
    counts = Counter(finding.verdict for finding in judged if finding.now == state)
    return " / ".join(str(counts[verdict]) for verdict in VERDICTS)


def _by_rule(judged: Sequence[JudgedFinding]) -> str:
    lines = [
        "| rule | true | pedantic | false | reported as before | otherwise |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for rule, counts in sorted(by_rule(judged).items()):
        own = [finding for finding in judged if finding.rule == rule]
        figures = " | ".join(str(counts[verdict]) for verdict in VERDICTS)
        lines.append(f"| {rule} | {figures} | {_left(own, 'same')} | {_left(own, 'changed')} |")
    return "\n".join(lines) + "\n"


def _silence(files: Sequence[SilentFile]) -> str:
    missed = [file for file in files if file.missed is not None]
    return (
        f"Of {len(files)} files without a finding, {len(missed)} had a fault that should have been"
        " found.\n"
    )


def _share(count: int, total: int) -> str:
    return f"{count} ({count / total:.0%})"
