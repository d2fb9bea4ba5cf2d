"""Base class of the rules that count bad answers: each names what is bad about one, and the tolerated share.

An answer that was not told, a pass with too few of them, or a share that chance may have made leaves such a rule
without a verdict. It then says so with its counts, so that `1 of 1 answers are empty` never stands under "fine".
"""

from __future__ import annotations

from typing import ClassVar

from truetune.checks.answers.count_bad_answers_per_pass import (
    BadAnswerCount,
    count_bad_answers,
    is_bad_share_surely_above,
    is_late_in_run,
)
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import Sample

REMEDY_FOR_CUT_THINKING = (
    "they end before their thinking does: give the answers room first (max_new_tokens, max_tokens, a thinking budget),"
    " or ask without thinking (enable_thinking=False) where the references have none; what the stop token learned is"
    " not seen before"
)
"""Of answers that are cut inside of `<think>`, whichever rule counts them"""
MORE = "ask more prompts (-n)"
# Chosen, not measured. Three of four bad answers among few are no chance result that a green exit code may stand
# over.
MOST = 0.75
"""A share of all answers that are bad from which "too few to tell" is not passed over: the exit code is 3"""


class BadAnswerShareRule(AnswersRule):
    """Counts answers that are bad in one way."""

    tolerated: ClassVar[float]
    """The share of bad answers that a finished model may have"""
    called: ClassVar[str]
    """What is bad, as it follows `3 of 8 answers`: `are empty`"""
    untold: ClassVar[Unmet] = Unmet("it can be judged for no answer")
    """Where `bad` is None for each"""

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Is this answer bad? None where it can't be told."""
        raise NotImplementedError

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet:
            return unmet
        counts = count_bad_answers(self.subject, self.is_bad_answer)
        return self.untold if counts is None else self._why_undecided(counts.count_in_last_pass)

    def measurement_if_clean(self) -> str:
        """How many answers are bad in the last pass, and over how many passes they were counted."""
        counts = count_bad_answers(self.subject, self.is_bad_answer)
        assert counts is not None
        passes = f", over {len(counts.counts):,} passes" if len(counts.counts) > 1 else ""
        return f"{counts.count_in_last_pass} answers {self.called}{passes}"

    def _why_undecided(self, last: BadAnswerCount) -> Unmet | None:
        """Why a pass that shows bad answers, or has too few to show any, decides nothing."""
        phrase = f"{last} answers {self.called}"
        if not is_late_in_run(self.subject):
            # With a pass before it, the rules that compare passes say what can be said.
            early = len(self.subject.looks) < 2
            return (
                Unmet(f"{phrase}, early in the run: there is nothing to compare them with")
                if early
                else None
            )
        if last.share > self.tolerated:
            why = f"{phrase}: too few to say whether that is more than {self.tolerated:.0%}"
            answers = len(self.subject.looks[-1].samples)
            return Unmet(why, MORE, asked=last.bad >= MOST * answers)
        if not is_bad_share_surely_above(
            BadAnswerCount(last.step, last.of, last.of), self.tolerated
        ):
            return Unmet(f"{phrase}: too few to judge", MORE)
        return None
