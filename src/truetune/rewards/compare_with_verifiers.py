"""Compares what a reward function pays with the verdicts of installed verifiers of mathematics.

Compared are completions that are right or wrong by how they were made: right answers in the forms that the function
pays for at all, their other spellings, and what was tried instead of them. Forms that it never pays for are its choice
and are left out, as are completions whose worth can be argued about, such as the right answer in the thoughts alone.

The trade-off: a verifier that fails, or is slow, is told as the reason why nothing, or less, was compared. It never
makes the trial fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
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

# Chosen: math-verify takes a millisecond for a usual completion, and 20 rows have some 1,000 of them.
MAX_SECONDS = 30.0
"""After which a verifier is asked nothing more"""
# Chosen, not measured: sympy imports in half a second, and in several from a cold disk.
IMPORT_SECONDS = 20.0
# The time limits of math-verify end no power of large integers, as in 10^{10^{10}}.
ROW_SECONDS = 5.0
"""That the completions of one row may take"""
MAX_FAILED_ROWS = 2
"""Rows without an answer of the verifier, after which it is asked nothing more: each costs the time limit"""


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
    by_text: dict[tuple[int, str], ComparedCompletion] = {}
    for one in (*trial.right_ones, *_attacks_of_known_worth(trial)):
        answer = trial.answers[one.row]
        if one.score is not None and is_mathematics(answer):
            by_text.setdefault((one.row, one.completion), one)
    return list(by_text.values())


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
    return answer.kind == "number" or answer.is_fraction or answer.is_formula


def compare_with_verifier(
    verifier: Verifier, completions: Sequence[ComparedCompletion], *, python_only: bool
) -> VerifierComparison:
    """The function beside one verifier. Never raises what the verifier raises.

    Args:
        verifier: one that is installed.
        completions: what the function has scored.
        python_only: make do without confinement by the system, where it has none.
    """
    ordered = sorted(completions, key=lambda one: one.row)
    verdicts: list[bool | None] = []
    failures: list[str] = []
    problem = ""
    until = _now() + MAX_SECONDS
    with RewardProcess(verifier.target, ROW_SECONDS, python_only=python_only) as process:
        for _, of_row in groupby(ordered, key=lambda one: one.row):
            problem = _problem_of_start(process) or _problem_of_time(until)
            if problem:
                break
            scores, failure = _ask(process, list(of_row), ROW_SECONDS)
            verdicts += [None if score is None else score > 0 for score in scores]
            if failure:
                failures.append(failure)
            if len(failures) == MAX_FAILED_ROWS:
                problem = failure
                break
    if not problem and all(verdict is None for verdict in verdicts):
        problem = failures[-1] if failures else "it gave no verdict on any of them"
    return compare_verdicts(verifier.name, verifier.version, ordered, verdicts, problem)


def _problem_of_start(process: RewardProcess) -> str:
    """Import the verifier where its process has not, or has ended; why that fails, or nothing."""
    if process.process is not None:
        return ""
    return _ask(process, (), IMPORT_SECONDS)[1]


def _problem_of_time(until: float) -> str:
    """What to say where the time of the comparison is over, or nothing."""
    return f"it took longer than {MAX_SECONDS:.0f} s" if _now() > until else ""


def _ask(
    process: RewardProcess, completions: Sequence[ComparedCompletion], seconds: float
) -> tuple[Sequence[float | None], str]:
    """(verdicts, failure): without a verdict on each completion where there is a failure."""
    texts = [one.completion for one in completions]
    nothing = [None] * len(texts)
    try:
        result = process.call(
            texts,
            [""] * len(texts),
            [[]] * len(texts),
            {"references": [one.reference for one in completions]},
            seconds=seconds,
        )
    except RewardCallHung:
        return nothing, f"a call took longer than {seconds:.0f} s"
    except TruetuneError as error:
        return nothing, str(error)
    if result.raised or result.problem:
        return nothing, result.raised or f"it returned {result.problem}"
    return result.scores, ""
