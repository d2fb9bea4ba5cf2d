"""Measures how long a run evaluated, saved or sampled, from its console output.

Two ways. Lines of loops of one's own say it (`validation took 312 s`, `saved checkpoint in 45.1s`). Else the clock in
front of lines does: where an evaluation stands between two lines that count steps, the time between them is longer than
those steps take elsewhere in the same log. The trade-off: without a stretch that has no evaluation the clock proves
nothing, and where several kinds stand in one stretch they are named together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import NamedTuple

EVALUATION, SAVING, SAMPLING = "evaluation", "saving", "sampling"
KIND_PATTERNS = (
    (EVALUATION, re.compile(r"\b(?:eval\w*|valid\w*|val|dev)(?![a-z])", re.I)),
    (SAVING, re.compile(r"\b(?:sav(?:e|ed|es|ing)|checkpoint(?:ed|ing)?|ckpt)\b", re.I)),
    (SAMPLING, re.compile(r"\b(?:generat(?:e|ed|ing|ion)s?|sampl(?:e|ed|ing)|predict\w*)\b", re.I)),
)
"""What lines speak of; the first that fits names the line"""
ASIDE_WORDS = re.compile(
    r"eval|valid|\bval\b|\bdev\b|sav|checkpoint|ckpt|generat|sampl|predict", re.I
)
EVENT = re.compile(
    r"Running Evaluation|\beval_?loss\b|\b(?:val|valid|validation|dev)[_ ]?loss\b|\bevaluating\b|\bSaving"
    r" model checkpoint"
    r"|\bsav(?:ed|ing)\b.{0,40}\b(?:checkpoint|ckpt|model|state|weights)\b|\bcheckpoint saved\b"
    r"|\bgenerating (?:\d+ )?(?:samples|predictions|answers)\b|\brunning validation\b",
    re.I,
)
"""A line that says that something beside training was done"""
DURATION = re.compile(
    r"\b(?:took|takes|in|after|time|runtime|elapsed|seconds|duration|finished in|done in)\b['\"]?[ :=(]{0,4}"
    r"(?P<figure>\d{1,6}(?:\.\d{1,6})?) ?(?P<unit>ms|s|secs?|seconds|m|min|mins|minutes)\b(?!/)"
    r"|\b(?:\w{1,20}[_ ])?(?:time|runtime|seconds|secs?|duration)(?:_s|_sec)?['\"]?[ :=]{1,3}"
    r"(?P<bare>\d{1,6}\.\d{1,6})(?![\w%]|/)|\((?P<paren>\d{1,6}(?:\.\d{1,6})?) ?(?P<paren_unit>s|secs?|seconds|min)\)",
    re.I,
)
"""`took 312.4 s`, `eval_time=310.2`, `(45 s)`"""
OWN_NAMES = ("eval_runtime", "train_runtime", "per_second", "s/it", "it/s", "dt:")
"""Records of transformers, which are read as curves, and times of a step"""
CLOCK = re.compile(
    r"(?:(?P<date>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ](?:- )?)?"
    r"(?<![\d:.])(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d):(?P<second>[0-5]\d)(?![\d:<])"
)
MAX_CLOCK_COLUMN = 40
"""A clock stands at the beginning of a line; elsewhere it is a time that is left"""
STEP = re.compile(
    r"\b(?:global[_ ]?)?(?:step|iter|iteration|it|batch)s?\b['\"]?[ :=#\[]{0,4}(?P<step>\d{1,9})\b",
    re.I,
)
MAX_STRETCHES = 4_000
"""Stretches between logged steps that are kept, the first of the log. Chosen by hand: it bounds the
memory of long logs. Fewer could end before the second evaluation"""
MAX_BARS = 100_000
"""Steps of a progress bar that are kept, the first of the log. Chosen by hand: it bounds the
memory. A bar gives one for each step, so that fewer would end before the end of an ordinary run"""
MIN_CLEAN = 2
"""Stretches of steps alone from which their usual time is known"""
SECONDS_OF = {"ms": 0.001, "m": 60.0, "min": 60.0, "mins": 60.0, "minutes": 60.0}


class BarTime(NamedTuple):
    """A drawing of the training's bar."""

    done: int
    gone: float
    """Seconds since it began"""
    evaluations: int
    """Records with `eval_runtime` before it"""


@dataclass(frozen=True, slots=True)
class TimeAside:
    """Seconds that a run spent on other things than training."""

    seconds: float = 0.0
    times: int = 0
    """How often"""
    kinds: tuple[str, ...] = ()
    """Of `evaluation`, `saving`, `sampling`"""
    clock_seconds: float | None = None
    """From the first line with a step to the last line with a clock"""
    bars: tuple[BarTime, ...] = ()
    """The training's bar, at each step at which it was drawn"""
    by_clock: bool = False
    """Seen by the clock of lines, and not printed as seconds"""


@dataclass(slots=True)
class _Stretch:
    """Two lines that count steps."""

    seconds: float
    steps: int
    kinds: frozenset[str]


@dataclass(slots=True)
class TimeAsideReader:
    """Takes the lines of one log."""

    _printed: dict[str, float] = field(default_factory=dict)
    _times: int = 0
    _first: datetime | None = None
    _last: datetime | None = None
    _days: int = 0
    _mark: tuple[int, datetime] | None = None
    _pending: set[str] = field(default_factory=set)
    _stretches: list[_Stretch] = field(default_factory=list)
    _bars: list[BarTime] = field(default_factory=list)
    _evaluations: int = 0

    def add_bar(self, done: int, gone: float | None) -> None:
        """Read a drawing of the training's bar; of several drawings at a step the last counts."""
        if gone is None:
            return
        if self._bars and self._bars[-1].done == done:
            del self._bars[-1]
        if len(self._bars) < MAX_BARS:
            self._bars.append(BarTime(done, gone, self._evaluations))

    def add_line(self, text: str) -> None:
        """Read one line, with its clock."""
        is_aside = ASIDE_WORDS.search(text) is not None
        if is_aside:
            self._evaluations += "eval_runtime" in text
            self._read_printed_duration(text)
            if EVENT.search(text) is not None:
                self._pending |= set(_activities_in_line(text)[:1])
        clock = self._parse_clock(text)
        if clock is None:
            return
        if self._first is not None:
            self._last = clock
        counter = STEP.search(text)
        # The line of an evaluation names its step too, and stands behind it.
        if counter is not None and not (is_aside and EVENT.search(text) is not None):
            self._end_stretch_at_step(int(counter["step"]), clock)

    def finish(self) -> TimeAside:
        """The seconds that the run spent on other things than training steps."""
        span = None
        if self._first is not None and self._last is not None:
            span = (self._last - self._first).total_seconds() or None
        if self._printed:
            kinds = tuple(sorted(self._printed, key=lambda kind: -self._printed[kind]))
            return TimeAside(
                sum(self._printed.values()), self._times, kinds, span, tuple(self._bars)
            )
        return self._extra_time_of_evaluations_by_clock(span)

    def _extra_time_of_evaluations_by_clock(self, span: float | None) -> TimeAside:
        """The extra time of stretches with an evaluation, over what their steps take elsewhere."""
        clean = [one.seconds / one.steps for one in self._stretches if not one.kinds]
        longer = [one for one in self._stretches if one.kinds]
        if len(clean) < MIN_CLEAN or not longer:
            return TimeAside(clock_seconds=span, bars=tuple(self._bars))
        pace = median(clean)
        extra = sum(max(0.0, one.seconds - pace * one.steps) for one in longer)
        kinds = tuple(sorted({kind for one in longer for kind in one.kinds}))
        return TimeAside(extra, len(longer), kinds, span, tuple(self._bars), by_clock=True)

    def _read_printed_duration(self, text: str) -> None:
        """Keep the seconds that a line prints of an evaluation, a save or samples."""
        if any(name in text for name in OWN_NAMES):
            return
        match = DURATION.search(text)
        kinds = _activities_in_line(text)
        if match is None or not kinds:
            return
        figure = float(match["figure"] or match["bare"] or match["paren"])
        unit = (match["unit"] or match["paren_unit"] or "s").lower()
        self._printed[kinds[0]] = self._printed.get(kinds[0], 0.0) + figure * SECONDS_OF.get(
            unit, 1.0
        )
        self._times += 1

    def _end_stretch_at_step(self, step: int, clock: datetime) -> None:
        """Read a line that counts steps: the stretch from the one before it ends here."""
        self._first = self._first or clock
        if self._mark is not None and step > self._mark[0] and len(self._stretches) < MAX_STRETCHES:
            seconds = (clock - self._mark[1]).total_seconds()
            if seconds >= 0:
                self._stretches.append(
                    _Stretch(seconds, step - self._mark[0], frozenset(self._pending))
                )
        if self._mark is None or step != self._mark[0]:
            self._mark = (step, clock)
            self._pending.clear()

    def _parse_clock(self, text: str) -> datetime | None:
        """The time of a line; one without a date continues from the line before it, over midnight
        too.
        """
        match = CLOCK.search(text[: MAX_CLOCK_COLUMN + 8])
        if match is None:
            return None
        time = (int(match["hour"]), int(match["minute"]), int(match["second"]))
        if match["date"]:
            try:
                return datetime(int(match["date"]), int(match["month"]), int(match["day"]), *time)
            except ValueError:
                return None
        last = self._last or self._first
        if last is None:
            return datetime(2000, 1, 1, *time)
        clock = datetime(last.year, last.month, last.day, *time)
        # A little back is another process's line; far back is the next day.
        return clock + timedelta(days=1) if (last - clock).total_seconds() > 12 * 3600 else clock


def _activities_in_line(text: str) -> list[str]:
    """The activities (evaluation, save, samples) that a line names, the surest first."""
    return [kind for kind, pattern in KIND_PATTERNS if pattern.search(text)]
