"""Tells which reading of the answers gives the figures that a script wrote beside its predictions (metrics.json).

A user compares our counts with the accuracy of their own script. So the usual ways to count right answers are tried
(`count_right_answers_in_usual_ways`), and a sentence says which of them gives the figure that stands beside. The
trade-off: files and figures are known by their names alone, and a figure of other answers may agree by chance; so a
figure out of a log is told only where a reading gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from truetune.generation.labels_said_by_answers import LabelScores
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json

FILE_NAME = re.compile(r"metric|result|score|eval|summary|report", re.I)
"""Names of files that hold figures"""
FIGURE_NAME = re.compile(
    r"(?:^|[_\s/.-])(?:acc|accuracy|exact_?match|em|correct|pass_?rate|score)(?:$|[_\s/.-])", re.I
)
"""Names of figures that count right answers"""
PRINTED_FIGURE = re.compile(
    r"(?:^|[\s,;|])(?P<name>(?:[a-z]{1,20}[_ -])?(?:accuracy|acc|exact[_ ]match|em|pass[_ ]rate))"
    r"\s{0,3}[:=|]?\s{1,3}(?P<value>\d{1,3}(?:\.\d{1,6})?)\s?(?P<percent>%)?(?!\S)",
    re.IGNORECASE,
)
"""`accuracy 0.988`, `acc: 98.8%` in what a script printed"""
PRINTED_SUFFIXES = frozenset((".log", ".txt", ".out"))
MAX_FILES, MAX_BYTES, MAX_DEPTH = 20, 1 << 20, 4
"""Files that are read, the largest of them, and how deep a figure may stand"""
# Half a row of a hundred: figures are written with two to four digits.
TOLERANCE = 0.006
"""Difference below which two figures are the same"""


class FigureBeside(NamedTuple):
    """A share of right answers that stands in a file."""

    file: str
    name: str
    value: float
    """0 to 1"""
    is_printed: bool = False
    """It stands in a log, which may be that of other answers"""


class Reading(NamedTuple):
    """What is counted as right, and how many are."""

    name: str
    right: int
    of: int

    @property
    def share(self) -> float:
        """The share of the answers that this reading counts as right."""
        return self.right / self.of


def right_answer_shares_in_files_beside(path: Path) -> list[FigureBeside]:
    """The shares of right answers in the JSON files beside a file of predictions."""
    figure_besides: list[FigureBeside] = []
    folder = path.parent
    names = sorted(folder.glob("*.json")) if folder.is_dir() else []
    others = [one for one in names if one != path and FILE_NAME.search(one.stem)]
    for file in others[:MAX_FILES]:
        try:
            if file.stat().st_size > MAX_BYTES:
                continue
            values = parse_json(file.read_bytes(), RESULT)
        except (OSError, ValueError):
            continue
        figure_besides += [
            FigureBeside(file.name, name, value)
            for name, value in _find_shares_named_as_right_answers(values)
        ]
    return figure_besides + _shares_printed_in_logs(folder)


def _shares_printed_in_logs(folder: Path) -> list[FigureBeside]:
    """The shares that logs of a folder print, each once."""
    found: dict[FigureBeside, None] = {}
    names = sorted(folder.iterdir()) if folder.is_dir() else []
    logs = [one for one in names if one.suffix in PRINTED_SUFFIXES and FILE_NAME.search(one.stem)]
    for file in logs[:MAX_FILES]:
        for match in PRINTED_FIGURE.finditer(_read_small_log(file)):
            value = float(match["value"]) / (100 if match["percent"] else 1)
            if 0 <= value <= 1 and len(found) < MAX_FILES:
                found[FigureBeside(file.name, match["name"], value, is_printed=True)] = None
    return list(found)


def _read_small_log(file: Path) -> str:
    """The text of a log; empty where it is too large, or cannot be read."""
    try:
        if not file.is_file() or file.stat().st_size > MAX_BYTES:
            return ""
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def is_same_share(one: float, other: float) -> bool:
    """Are two shares one figure, as they are written?"""
    return abs(one - other) <= TOLERANCE


def count_right_answers_in_usual_ways(
    answers: Sequence[str], references: Sequence[str], labels: LabelScores | None
) -> list[Reading]:
    """The usual ways to count right answers."""
    pairs = [(a, r) for a, r in zip(answers, references, strict=True) if r.strip()]
    if not pairs:
        return []
    readings = []
    if labels is not None:
        readings += [
            Reading("the first label found", labels.right_count_by_first_label, labels.rows),
            Reading("the only label found", labels.right_count_by_only_label, labels.rows),
        ]
    exact = sum(a.split() == r.split() for a, r in pairs)
    folded = sum(a.strip().casefold() == r.strip().casefold() for a, r in pairs)
    in_text = sum(r.strip().casefold() in a.casefold() for a, r in pairs)
    return [
        *readings,
        Reading("exact match", exact, len(pairs)),
        Reading("exact match without case", folded, len(pairs)),
        Reading("`reference in answer`", in_text, len(pairs)),
    ]


def explain_scores_found_beside(
    figures: Sequence[FigureBeside], readings: Sequence[Reading]
) -> Iterator[str]:
    """A sentence for each figure beside: what this report counts, and which reading gives it."""
    if not readings:
        return
    for figure in figures:
        same = [one for one in readings if is_same_share(one.share, figure.value)]
        # A log may be that of another run: what it prints tells something where it is a count of these answers.
        if figure.is_printed and (not same or same[0] is readings[0]):
            continue
        says = f"{figure.file} says {figure.name} {figure.value:.3g}"
        own = ", ".join(
            f"{one.right} of {one.of} ({one.share:.3g}) by {one.name}" for one in readings
        )
        if not same:
            yield f"{says}; here: {own}: none of these gives that figure"
        elif same[0] is not readings[0]:
            yield f"{says}, which is what {same[0].name} gives; here: {own}"
        else:
            yield f"{says}, as here by {same[0].name}"


def _find_shares_named_as_right_answers(
    values: Any, name: str = "", depth: int = 0
) -> Iterator[tuple[str, float]]:
    """(name, share): numbers whose name is one of right answers; percentages as shares."""
    if isinstance(values, Mapping) and depth < MAX_DEPTH:
        for key, value in values.items():
            yield from _find_shares_named_as_right_answers(
                value, f"{name}.{key}" if name else str(key), depth + 1
            )
        return
    is_number = isinstance(values, int | float) and not isinstance(values, bool)
    if not is_number or not FIGURE_NAME.search(name.rpartition(".")[2]):
        return
    if 0 <= values <= 1:
        yield name, float(values)
    elif 1 < values <= 100 and isinstance(values, float):
        yield name, values / 100
