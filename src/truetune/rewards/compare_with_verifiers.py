"""Compares what a reward function pays with the verdicts of installed verifiers of mathematics.

Compared are completions that are right or wrong by how they were made: right answers in the forms that the function
pays for at all, their other spellings, and what was tried instead of them. Forms that it never pays for are its choice
and are left out, as are completions whose worth can be argued about, such as the right answer in the thoughts alone.

The trade-off: a verifier that fails, or is slow, is told as the reason why nothing, or less, was compared. It never
makes the trial fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from time import monotonic as _now
from typing import get_args

from truetune.errors import TruetuneError
from truetune.generation.verifier_comparison import (
    ComparedCompletion,
    ComparedKind,
    VerifierComparison,
    compare_verdicts,
)
from truetune.rewards.reward_process import RewardCallHung, RewardProcess
from truetune.rewards.rows_for_rewards import RightAnswer
from truetune.rewards.trial_in_progress import TrialInProgress, TrialOptions
from truetune.rewards.verifiers import Verifier

# Chosen: math-verify takes a millisecond for a usual completion, 20 rows have some 1,000 of them.
MAX_SECONDS = 30.0
"""After which a verifier is asked nothing more"""
CALL_SECONDS = 20.0
"""That one call may take, the import of the verifier included"""
COMPLETIONS_PER_CALL = 64
_FORMULA = re.compile(r".*(?:\\[A-Za-z]+|\w\^[\w{-]).*|-?\d+\s*/\s*\d+")


def compare_with_verifiers(
    trial: TrialInProgress, options: TrialOptions
) -> tuple[VerifierComparison, ...]:
    """The function beside each verifier that is installed; empty where nothing can be compared.

    Args:
        trial: all that was scored.
        options: with the verifiers.
    """
    installed = [verifier for verifier in options.verifiers if verifier.is_installed]
    completions = _completions_of_known_worth(trial) if installed and trial.reads_columns else []
    if not completions or options.golden is not None:
        return ()
    return tuple(
        compare_with_verifier(verifier, completions, python_only=options.python_only)
        for verifier in installed
    )


def _completions_of_known_worth(trial: TrialInProgress) -> list[ComparedCompletion]:
    """What was scored of the rows whose right answer is a number or a formula, each completion of a row once."""
    judged: dict[tuple[int, str], ComparedCompletion] = {}
    for one in (*trial.right_ones, *_attacks_of_known_worth(trial)):
        answer = trial.answers[one.row]
        if one.score is not None and is_mathematics(answer):
            judged.setdefault((one.row, one.completion), one)
    return list(judged.values())


def _attacks_of_known_worth(trial: TrialInProgress) -> Iterator[ComparedCompletion]:
    """What was tried instead of the right answers and is surely wrong."""
    kinds: dict[str, ComparedKind] = {kind: kind for kind in get_args(ComparedKind)}
    for one in trial.tried:
        if one.kind in kinds:
            reference = trial.answers[one.row].text
            yield ComparedCompletion(
                kinds[one.kind], one.what, one.row, reference, one.completion, one.score, one.is_paid
            )  # fmt: skip


def is_mathematics(answer: RightAnswer) -> bool:
    """Is a right answer a number, or a formula of LaTeX?"""
    return answer.kind == "number" or (
        answer.kind is None and answer.is_short and _FORMULA.fullmatch(answer.text) is not None
    )


def compare_with_verifier(
    verifier: Verifier, completions: Sequence[ComparedCompletion], *, python_only: bool
) -> VerifierComparison:
    """The function beside one verifier. Never raises what the verifier raises."""
    verdicts: list[bool | None] = []
    problem = ""
    until = _now() + MAX_SECONDS
    with RewardProcess(verifier.target, CALL_SECONDS, python_only=python_only) as process:
        for start in range(0, len(completions), COMPLETIONS_PER_CALL):
            if _now() > until:
                problem = f"it took longer than {MAX_SECONDS:.0f} s"
                break
            part = completions[start : start + COMPLETIONS_PER_CALL]
            scores, problem = _ask(process, part)
            if problem:
                break
            verdicts += [None if score is None else score > 0 for score in scores]
    if not problem and all(verdict is None for verdict in verdicts):
        problem = "it gave no verdict on any of them"
    return compare_verdicts(verifier.name, verifier.version, completions, verdicts, problem)


def _ask(
    process: RewardProcess, completions: Sequence[ComparedCompletion]
) -> tuple[tuple[float | None, ...], str]:
    """(verdicts, problem): the problem is empty where there is a verdict for each."""
    texts = [one.completion for one in completions]
    references = [one.reference for one in completions]
    try:
        result = process.call(
            texts,
            [""] * len(texts),
            [[]] * len(texts),
            {"references": references},
            seconds=CALL_SECONDS,
        )
    except RewardCallHung:
        return (), f"a call took longer than {CALL_SECONDS:.0f} s"
    except TruetuneError as error:
        return (), str(error)
    if result.problem:
        return (), f"it returned {result.problem}"
    return result.scores, result.raised
