"""Counts the steps that are skipped because gradients overflow in float16, and follows the loss scale.

A scale that is searched is halved at each overflow, once or twice after a delay (hysteresis). One that is printed as
the same number before and after is fixed by the settings, or has come down to the least that they allow: every step
that overflows once overflows again. DeepSpeed prints both numbers, Apex and fairseq only the new one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NUMBER = r"(\d{1,20}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?)"
OVERFLOW = re.compile(rf"Attempted loss scale: {NUMBER}, reducing to {NUMBER}")
COUNTER = re.compile(r"\bstep=(\d{1,9}), skipped=(\d{1,9}), lr=")
HYSTERESIS = re.compile(rf"Attempted loss scale: {NUMBER}, but hysteresis is")
"""DeepSpeed waits for a second overflow before it halves a scale that it searches"""
NEW_SCALE = re.compile(rf"overflow.{{1,60}}?(?:reducing|setting) loss scale to:? {NUMBER}")
"""Apex: `Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0`. fairseq: `gradient overflow
detected, ignoring gradient, setting loss scale to: 64.0`"""
MARKS = ("Attempted loss scale: ", ", skipped=", " loss scale to")
# DeepSpeed's hysteresis of 2 leaves a scale as it is once; three times that is no delay.
MIN_AT_ONE_SCALE = 6
LEAST_SCALE = 1.0
"""DeepSpeed's own least: a scale that has come down to it is searched, and is halved no more. Below it, small gradients
are lost: Apex has no least, and halves on"""
MIN_FALL = 8.0
"""How many times smaller a scale has become that was searched. Chosen: three halvings are no delay"""


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
    first_scale: float = 0.0
    """The first scale that was tried"""
    at_least: int = 0
    """The last overflows in a row at which the scale was not lowered, or was at 1 or below already"""

    @property
    def is_loss_scale_at_its_least(self) -> bool:
        """Was the scale lowered as far as it goes, and do gradients overflow there too?"""
        has_fallen = self.scale <= LEAST_SCALE or self.first_scale >= MIN_FALL * self.scale
        return self.at_least >= MIN_AT_ONE_SCALE and has_fallen

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
    _first_scale: float = 0.0
    _at_least: int = 0
    _next_scale: float = 0.0
    """The scale after the last overflow, where only that is printed"""

    def add_line(self, text: str, number: int) -> None:
        """Read one line."""
        if not any(mark in text for mark in MARKS):
            return
        overflow = OVERFLOW.search(text)
        if overflow is not None:
            self._count_overflow(float(overflow[1]), float(overflow[2]), text, number)
        elif (waiting := HYSTERESIS.search(text)) is not None:
            self._count_delayed_overflow(float(waiting[1]), text, number)
        elif (new := NEW_SCALE.search(text)) is not None:
            # Both halve: the scale that was tried is the one printed before, or twice the first one.
            reduced = float(new[1])
            self._count_overflow(self._next_scale or 2 * reduced, reduced, text, number)
            self._next_scale = reduced
        counter = COUNTER.search(text)
        if counter is not None:
            self._steps, self._skipped = int(counter[1]), int(counter[2])
            self._counted_at = number

    def _count_overflow(self, tried: float, reduced: float, text: str, number: int) -> None:
        """Count one overflow."""
        self._note_first_overflow(tried, text, number)
        self._overflows += 1
        self._unchanged += tried == reduced
        self._at_least = self._at_least + 1 if tried == reduced or tried <= LEAST_SCALE else 0
        self._scale = tried

    def _count_delayed_overflow(self, tried: float, text: str, number: int) -> None:
        """Count one overflow that lowers the hysteresis first."""
        self._note_first_overflow(tried, text, number)
        self._overflows += 1
        self._scale = tried

    def _note_first_overflow(self, tried: float, text: str, number: int) -> None:
        """Keep the place and the scale of the first overflow."""
        if not self._overflows:
            self._line, self._text = number, text.strip()[:300]
            self._first_scale = tried

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
            self._first_scale,
            self._at_least,
        )
