"""Counts the steps that DeepSpeed skips because gradients overflow in float16, and follows its loss
scale.

A scale that is searched is halved at each overflow, once or twice after a delay (hysteresis). One that is printed as
the same number before and after is fixed by the settings: every step that overflows once overflows again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NUMBER = r"(\d{1,20}(?:\.\d{1,6})?(?:e\+?\d{1,3})?)"
OVERFLOW = re.compile(rf"Attempted loss scale: {NUMBER}, reducing to {NUMBER}")
COUNTER = re.compile(r"\bstep=(\d{1,9}), skipped=(\d{1,9}), lr=")
MARKS = ("Attempted loss scale: ", ", skipped=")
# DeepSpeed's hysteresis of 2 leaves a scale as it is once; three times that is no delay.
MIN_AT_ONE_SCALE = 6
LEAST_SCALE = 1.0
"""DeepSpeed's own least: a scale that has come down to it is searched, and is halved no more"""


@dataclass(frozen=True, slots=True)
class SkippedSteps:
    """The steps that were skipped."""

    overflows: int = 0
    """Lines that say so"""
    unchanged: int = 0
    """Of them, those that leave the scale as it is"""
    scale: float = 0.0
    """The last scale that was tried"""
    line: int = 0
    """Of the first overflow, 1-based"""
    text: str = ""
    steps: int = 0
    """As DeepSpeed counts them; 0 where it does not say"""
    skipped: int = 0
    counted_at: int = 0
    """The line of that count"""

    @property
    def is_loss_scale_fixed(self) -> bool:
        """Is the loss scale a fixed number, at which gradients overflow?"""
        is_same = self.unchanged == self.overflows >= MIN_AT_ONE_SCALE
        return is_same and self.scale > LEAST_SCALE

    @property
    def is_every_step_skipped(self) -> bool:
        """Does DeepSpeed count every step as skipped?"""
        return self.steps > 0 and self.skipped >= self.steps


@dataclass(slots=True)
class SkippedStepReader:
    """Counts overflows in the lines of one log."""

    _overflows: int = 0
    _unchanged: int = 0
    _scale: float = 0.0
    _line: int = 0
    _text: str = ""
    _steps: int = 0
    _skipped: int = 0
    _counted_at: int = 0

    def add_line(self, text: str, number: int) -> None:
        """Read one line."""
        if not any(mark in text for mark in MARKS):
            return
        overflow = OVERFLOW.search(text)
        if overflow is not None:
            self._count_overflow(float(overflow[1]), float(overflow[2]), text, number)
        counter = COUNTER.search(text)
        if counter is not None:
            self._steps, self._skipped = int(counter[1]), int(counter[2])
            self._counted_at = number

    def _count_overflow(self, tried: float, reduced: float, text: str, number: int) -> None:
        """Count one overflow."""
        if not self._overflows:
            self._line, self._text = number, text.strip()[:300]
        self._overflows += 1
        self._unchanged += tried == reduced
        self._scale = tried

    def finish(self) -> SkippedSteps:
        """The skipped steps that were counted."""
        return SkippedSteps(
            self._overflows,
            self._unchanged,
            self._scale,
            self._line,
            self._text,
            self._steps,
            self._skipped,
            self._counted_at,
        )
