"""Scores completions with a reward function, and keeps what goes wrong: exceptions, hangs, results that are no scores.

A call of TRL has a whole batch. Where a batch raises or takes too long, its completions are scored one by one, so that
the completion that it happens for is known and the others have scores. The trade-off: a function that fails for a batch
alone is then seen as one that works.
"""

from __future__ import annotations

import math
import re
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from truetune.generation.reward_trial import HungCall, RaisedError
from truetune.rewards.reward_process import (
    CallResult,
    RewardCallHung,
    RewardProcess,
    RewardProcessEnded,
)
from truetune.rewards.rows_for_rewards import RewardRow

# TRL scores 8 to 64 completions at once. More in one call would hide which one takes long.
MAX_BATCH = 96
# Chosen, not measured: a function that takes its limit for one completion is too slow for the 64 of a step; one that
# takes a thirtieth of it is not.
COMPLETIONS_PER_LIMIT = 32
"""Completions that may take as long together as one alone may"""
FIRST_CALL_FACTOR = 10
MAX_FAILURES = 100
"""Completions after which a function that has never given a score is given up; as many as all forms take"""
MAX_ENDS = 3
"""Processes that end within a call, after which the function is given up: each costs the import of its file"""
MAX_ERRORS = 20
"""Kinds of exceptions that are kept. Chosen, not measured: a finding shows three"""
MAX_NOT_FINITE = 20
VOCABULARY = 50_000
"""Different ids that stand in for those of a tokenizer; as many as small ones have"""
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
        max_seconds: float,
    ) -> None:
        """Nothing is called yet.

        Args:
            process: that has the function.
            completions_as: what the function gets.
            columns: names of the columns that are handed to it.
            max_seconds: after which no further call is made.
        """
        self.process = process
        self.completions_as = completions_as
        self.columns = columns
        self._raised: dict[tuple[str, str], RaisedError] = {}
        self.returned: dict[str, None] = {}
        self.not_finite: list[tuple[str, str]] = []
        self.swallowed: dict[str, None] = {}
        self.hung: HungCall | None = None
        self.succeeded = 0
        """Completions that have got a score, or None for one"""
        self.ends = 0
        """Processes that ended within a call"""
        self.deadline = time.monotonic() + max_seconds
        self.is_out_of_time = False
        self.batch = MAX_BATCH
        """Completions in one call"""

    def score(
        self, completions: Sequence[RowCompletion], *, traced: bool = False
    ) -> list[float | None]:
        """The score of each completion; None where there is none.

        Raises:
            TooManyFailures: nothing is scored any more.
        """
        scores: list[float | None] = []
        for start in range(0, len(completions), self.batch):
            part = completions[start : start + self.batch]
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
            # A function that works for one form alone fails for the forms that come before it.
            if failed > MAX_FAILURES and not self.succeeded:
                self._scores_of_result([one], result)
                raise TooManyFailures
            scores += self._scores_of_result([one], result)
        return scores

    def _scores_of_result(
        self, completions: Sequence[RowCompletion], result: CallResult
    ) -> list[float | None]:
        """The scores of a call; notes what is wrong with it."""
        if result.raised:
            self._note_error(completions[0], result)
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

    def _note_error(self, completion: RowCompletion, result: CallResult) -> None:
        """Keep an exception: of each kind and line that for the shortest completion."""
        key = (result.raised.partition(":")[0], result.line)
        known = self._raised.get(key)
        if known is None and len(self._raised) >= MAX_ERRORS:
            return
        if known is None or len(completion.text) < len(known.completion):
            self._raised[key] = RaisedError(
                result.raised, result.line, completion.text, completion.row.number
            )

    @property
    def raised(self) -> list[RaisedError]:
        """The exceptions so far."""
        return list(self._raised.values())

    def _note_hang(self, completion: RowCompletion, hung: RewardCallHung) -> None:
        """Note the completion that a call hung on. Raises TooManyFailures: it would hang on others as well."""
        self.hung = HungCall(completion.text, self.process.seconds, hung.line)
        raise TooManyFailures

    def _call(self, completions: Sequence[RowCompletion], *, traced: bool = False) -> CallResult:
        """Call the function with completions of rows, as TRL does."""
        if time.monotonic() > self.deadline:
            self.is_out_of_time = True
            raise TooManyFailures
        # The first call imports and compiles what it needs, which is no slowness of the function's.
        is_first = self.process.calls == 0
        try:
            return self.process.call(
                [self._as_completion(one.text) for one in completions],
                [self._as_prompt(one.row) for one in completions],
                [_stand_in_ids(one.text) for one in completions],
                {name: [one.row.columns.get(name) for one in completions] for name in self.columns},
                seconds=self._limit(len(completions)) * (FIRST_CALL_FACTOR if is_first else 1),
                traced=traced,
            )
        except RewardProcessEnded as ended:
            return self._note_end(completions, ended)

    def _note_end(
        self, completions: Sequence[RowCompletion], ended: RewardProcessEnded
    ) -> CallResult:
        """A process that ended within a call, as an exception. Raises TooManyFailures after some of them."""
        self.ends += 1
        result = CallResult(raised=str(ended))
        if self.ends > MAX_ENDS:
            self._note_error(min(completions, key=lambda one: len(one.text)), result)
            raise TooManyFailures from None
        return result

    def _limit(self, count: int) -> float:
        """Seconds that a call with so many completions may take."""
        return self.process.seconds * (1 + (count - 1) / COMPLETIONS_PER_LIMIT)

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


def _stand_in_ids(text: str) -> list[int]:
    """Ids in the place of a tokenizer's, one for each word and mark: functions of length or repetition count them."""
    return [zlib.crc32(word.encode()) % VOCABULARY for word in _TOKEN.findall(text)]
