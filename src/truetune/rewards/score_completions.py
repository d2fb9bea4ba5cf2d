"""Scores completions with a reward function, and keeps what goes wrong: exceptions, hangs, results that are no scores.

A call of TRL has a whole batch. Where a batch raises or takes too long, its completions are scored one by one, so that
the completion that it happens for is known and the others have scores. The trade-off: a function that fails for a batch
alone is then seen as one that works.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from truetune.generation.reward_trial import HungCall, RaisedError
from truetune.rewards.reward_process import CallResult, RewardCallHung, RewardProcess
from truetune.rewards.rows_for_rewards import RewardRow

# TRL scores 8 to 64 completions at once. More in one call would hide which one takes long.
MAX_BATCH = 96
MAX_ERRORS = 20
"""Completions that raise, of which each is kept; chosen, not measured: a finding shows three"""
MAX_NOT_FINITE = 20
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class RowCompletion:
    """A completion of a row."""

    row: RewardRow
    text: str


class TooManyFailures(Exception):
    """The function fails for all that it is given, or hung: nothing more is asked of it."""


class CompletionScorer:
    """Scores completions, and remembers what went wrong."""

    def __init__(
        self,
        process: RewardProcess,
        completions_as: Literal["text", "messages"],
        columns: Sequence[str],
    ) -> None:
        """`columns` are those that are handed to the function."""
        self.process = process
        self.completions_as = completions_as
        self.columns = columns
        self.raised: list[RaisedError] = []
        self.returned: dict[str, None] = {}
        self.not_finite: list[tuple[str, str]] = []
        self.swallowed: dict[str, None] = {}
        self.hung: HungCall | None = None
        self.succeeded = 0
        """Completions that have got a score, or None for one"""

    def score(
        self, completions: Sequence[RowCompletion], *, traced: bool = False
    ) -> list[float | None]:
        """The score of each completion; None where there is none.

        Raises:
            TooManyFailures: nothing is scored any more.
        """
        scores: list[float | None] = []
        for start in range(0, len(completions), MAX_BATCH):
            part = completions[start : start + MAX_BATCH]
            scores += self._score_batch(part, traced=traced)
        return scores

    def score_together(self, completions: Sequence[RowCompletion]) -> list[float | None] | None:
        """The scores of one call, without a second try; None where it fails."""
        try:
            result = self._call(completions)
        except RewardCallHung:
            return None
        if result.raised or result.problem:
            return None
        return [_finite(score) for score in result.scores]

    def _score_batch(
        self, completions: Sequence[RowCompletion], *, traced: bool
    ) -> list[float | None]:
        """The scores of one batch, or else of each completion alone."""
        try:
            result = self._call(completions, traced=traced)
        except RewardCallHung as hung:
            if len(completions) == 1:
                self._note_hang(completions[0], hung)
            return self._score_each(completions)
        if result.raised and len(completions) > 1:
            return self._score_each(completions)
        if result.problem and len(completions) > 1:
            self.returned.setdefault(result.problem)
            return self._score_each(completions)
        return self._scores_of_result(completions, result)

    def _score_each(self, completions: Sequence[RowCompletion]) -> list[float | None]:
        """The scores of completions, each in a call of its own."""
        scores: list[float | None] = []
        failed = 0
        for one in completions:
            try:
                result = self._call([one])
            except RewardCallHung as hung:
                self._note_hang(one, hung)
            failed += bool(result.raised or result.problem)
            # Where the first dozen fail and nothing ever worked, the others will.
            if failed > 12 and not self.succeeded:
                self._scores_of_result([one], result)
                raise TooManyFailures
            scores += self._scores_of_result([one], result)
        return scores

    def _scores_of_result(
        self, completions: Sequence[RowCompletion], result: CallResult
    ) -> list[float | None]:
        """The scores of a call; notes what is wrong with it."""
        if result.raised:
            if len(self.raised) < MAX_ERRORS:
                one = completions[0]
                self.raised.append(
                    RaisedError(result.raised, result.line, one.text, one.row.number)
                )
            return [None] * len(completions)
        self.swallowed.update(dict.fromkeys(result.swallowed))
        if result.problem:
            self.returned.setdefault(result.problem)
            return [None] * len(completions)
        self.succeeded += len(completions)
        for one, score in zip(completions, result.scores, strict=True):
            if score is not None and not math.isfinite(score):
                if len(self.not_finite) < MAX_NOT_FINITE:
                    self.not_finite.append((str(score), one.text))
        return [_finite(score) for score in result.scores]

    def _note_hang(self, completion: RowCompletion, hung: RewardCallHung) -> None:
        """Note the completion that a call hung on. Raises TooManyFailures: it would hang on others as well."""
        self.hung = HungCall(completion.text, self.process.seconds, hung.line)
        raise TooManyFailures

    def _call(self, completions: Sequence[RowCompletion], *, traced: bool = False) -> CallResult:
        """Call the function with completions of rows, as TRL does."""
        return self.process.call(
            [self._as_completion(one.text) for one in completions],
            [self._as_prompt(one.row) for one in completions],
            [_stand_in_ids(one.text) for one in completions],
            {name: [one.row.columns.get(name) for one in completions] for name in self.columns},
            traced=traced,
        )

    def _as_completion(self, text: str) -> Any:
        """A completion in the form that the function gets."""
        if self.completions_as == "text":
            return text
        return [{"role": "assistant", "content": text}]

    def _as_prompt(self, row: RewardRow) -> Any:
        """A prompt in the same form."""
        if self.completions_as == "text":
            return row.prompt
        if row.messages is not None:
            return list(row.messages)
        return [{"role": "user", "content": row.prompt}]


def _finite(score: float | None) -> float | None:
    """A score; None for one that is no finite number."""
    return score if score is not None and math.isfinite(score) else None


def _stand_in_ids(text: str) -> Iterable[int]:
    """Ids in the place of a tokenizer's, one for each word and mark: functions of length count them."""
    return range(1, len(_TOKEN.findall(text)) + 1)
