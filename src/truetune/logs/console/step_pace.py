"""Measures how long steps take and whether they come evenly, from the lines of a log.

Three ways, the first that a log has: what a line says that its step took (`9.8 s/it`, `dt: 812 ms`), bars with their
seconds a step, and the clock in front of lines that count steps. Evenly means that the slowest tenth takes little
longer than the usual step: a run that stands still has one step that never ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median

STEP_COUNTER = re.compile(
    r"(?:\b(?:global[_ ]?)?(?:step|iter|iteration|batch|it)s?\b['\"]?[ :=#\[]{0,4})(?P<step>\d{1,9})\b",
    re.I,
)
STEP_TIME = re.compile(
    r"(?P<per>\d{1,7}(?:\.\d{1,6})?) ?(?P<per_unit>ms|s|sec|secs|seconds) ?"
    r"(?:/|per|a) ?(?:it|iter|iteration|step|batch)\b"
    r"|\b(?:step[_ ]?time|iter(?:ation)?[_ ]?time|time[_ ]per[_ ](?:step|iter(?:ation)?)|elapsed time per iteration|dt"
    r"|step_s|sec(?:onds)?_per_step)\b['\"]?(?: ?\((?P<named_unit>ms|s)\))?[ :=|]{1,4}"
    r"(?P<named>\d{1,7}(?:\.\d{1,6})?) ?(?P<behind>ms|s)?\b"
    r"|\btime[ :=]{1,3}(?P<plain>\d{1,7}(?:\.\d{1,6})?) ?(?P<plain_unit>ms|s)\b",
    re.I,
)
STEP_RATE = re.compile(r"(?P<rate>\d{1,7}(?:\.\d{1,6})?) ?(?:it|iters|steps) ?/ ?s(?:ec)?\b", re.I)
ROW_RATE = re.compile(
    r"(?P<rate>\d{1,9}(?:\.\d{1,6})?) ?(?:samples|examples|rows|sequences|seqs) ?(?:/|per) ?s(?:ec(?:ond)?)?\b"
    r"|\b(?:samples|examples|rows)_per_sec(?:ond)?['\"]?[ :=]{1,3}(?P<named>\d{1,9}(?:\.\d{1,6})?)",
    re.I,
)
EPOCH_TIMES = ("train_samples_per_second", "eval_samples_per_second")
"""Results of a whole run, which are no rate of one step"""
CLOCK = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](?:- )?(\d\d):(\d\d):(\d\d)")
MAX_KEPT = 4_000
"""Steps whose times are kept"""
MIN_EVEN = 5
"""Steps from which a pace is one"""
MAX_SPREAD = 2.0
"""The slowest tenth over the median, up to which steps come evenly. Chosen, not measured: rows of many lengths, saving
and evaluations make single steps twice as long"""
MIN_GAP_S = 120.0
"""Seconds without a step that may be a standstill, whatever a step takes"""
GAP_STEPS = 5.0
"""Times of a usual step without a step that may be a standstill"""


@dataclass(frozen=True, slots=True)
class StepPace:
    """How steps follow one another."""

    seconds: float | None = None
    """Of a usual step; None where the log does not say"""
    is_even: bool = False
    """Do all steps that are seen take about as long?"""
    rows_a_second: float | None = None
    last: datetime | None = None
    """When the last step was logged, by the log's clock"""

    def stood_still_until(self, until: datetime | None) -> bool | None:
        """Was no step logged for long before this time? None if the log has no clock."""
        if self.last is None or until is None or self.seconds is None:
            return None
        gap = (until - self.last).total_seconds()
        return gap > max(MIN_GAP_S, GAP_STEPS * self.seconds)


@dataclass(slots=True)
class PaceReader:
    """Takes the lines of one log."""

    _times: list[float] = field(default_factory=list)
    _rates: list[float] = field(default_factory=list)
    _marks: list[tuple[int, datetime]] = field(default_factory=list)
    _bars: list[float] = field(default_factory=list)

    def add_line(self, text: str) -> None:
        """Read one line, with its clock and what it says of a step."""
        lowered = text.lower()
        if "step" not in lowered and "it" not in lowered and "batch" not in lowered:
            return
        counter = STEP_COUNTER.search(text)
        if counter is None or len(self._times) >= MAX_KEPT or len(self._marks) >= MAX_KEPT:
            return
        seconds = seconds_of_step_in_line(text)
        if seconds:
            self._times.append(seconds)
        rows_a_second = _rows_a_second_in_line(text)
        if rows_a_second is not None:
            self._rates.append(rows_a_second)
        self._mark_time_of_step(int(counter["step"]), parse_date_and_time(text))

    def _mark_time_of_step(self, step: int, clock: datetime | None) -> None:
        """Keep when a step was logged, unless it or a later one was before."""
        if clock is not None and (not self._marks or step > self._marks[-1][0]):
            self._marks.append((step, clock))

    def add_bar(self, seconds: float | None) -> None:
        """Add the seconds per step that a bar shows."""
        if seconds and len(self._bars) < MAX_KEPT:
            self._bars.append(seconds)

    def finish(self) -> StepPace:
        """The pace of the steps."""
        times = self._times or self._bars or self._step_seconds_by_clock()
        last = self._marks[-1][1] if self._marks else None
        rows = median(self._rates) if self._rates else None
        if not times:
            return StepPace(None, False, rows, last)
        usual = median(times)
        # The first steps compile kernels and fill caches.
        steady = sorted(times[1:])
        slow = steady[int(0.9 * (len(steady) - 1))] if steady else usual
        is_even = len(times) >= MIN_EVEN and slow <= MAX_SPREAD * usual
        return StepPace(usual, is_even, rows, last)

    def _step_seconds_by_clock(self) -> list[float]:
        """Seconds per step between the lines that count steps."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        spans = [((b[1] - a[1]).total_seconds(), b[0] - a[0]) for a, b in pairs]
        return [seconds / steps for seconds, steps in spans if seconds > 0]


def seconds_of_step_in_line(text: str) -> float | None:
    """The seconds that a line says its step took; None if it says none."""
    match = STEP_TIME.search(text)
    if match is None:
        rate = STEP_RATE.search(text)
        return 1 / float(rate["rate"]) if rate is not None and float(rate["rate"]) else None
    figure = match["per"] or match["named"] or match["plain"]
    unit = match["per_unit"] or match["named_unit"] or match["behind"] or match["plain_unit"] or "s"
    return float(figure) / (1000 if unit.lower() == "ms" else 1)


def _rows_a_second_in_line(text: str) -> float | None:
    """The rows a second that a line says of its step; None if it says none, or means a whole run."""
    if any(word in text for word in EPOCH_TIMES):
        return None
    rate = ROW_RATE.search(text)
    return None if rate is None else float(rate["rate"] or rate["named"])


def parse_date_and_time(text: str) -> datetime | None:
    """The first date and time in a line; None if it has none."""
    match = CLOCK.search(text)
    if match is None:
        return None
    try:
        return datetime(*map(int, match.groups()))  # type: ignore[arg-type]
    except ValueError:
        return None
