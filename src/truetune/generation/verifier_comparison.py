"""Where a reward function and a verifier of mathematics, as math-verify, judge the same completions differently.

A verifier is not the truth. Each completion is right or wrong by how it was made, so that it is known which of the two
is right where they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ComparedKind = Literal[
    "right",
    "spelling",
    "empty",
    "wrong",
    "near miss",
    "part",
    "candidates",
    "prompt",
    "thoughts",
    "taken back",
]
"""The kinds of completions that are right or wrong for sure: right answers, their other spellings, and attacks"""


@dataclass(frozen=True, slots=True)
class ComparedCompletion:
    """One completion that both have judged, or are to judge."""

    kind: ComparedKind
    what: str
    """`an empty text`, or the name of the form or spelling"""
    row: int
    """From 1"""
    reference: str
    """The right answer that it is compared with"""
    completion: str
    score: float | None
    is_paid: bool
    """Does the function pay for it as for a right answer?"""

    @property
    def is_right(self) -> bool:
        """Was it made to be right?"""
        return self.kind in ("right", "spelling")

    @property
    def is_judged_right_by_function(self) -> bool:
        """Does the function pay where it should, or not where it should not?"""
        return self.is_paid == self.is_right


@dataclass(frozen=True, slots=True)
class KindComparison:
    """How often both agree on the completions of one kind."""

    kind: ComparedKind
    compared: int
    function_alone: int
    """Completions that the function pays and the verifier does not"""
    verifier_alone: int
    """Completions that the verifier takes for right and the function does not pay"""


@dataclass(frozen=True, slots=True)
class VerifierComparison:
    """A reward function beside one verifier."""

    verifier: str
    """`math-verify`"""
    version: str
    """Empty where it is not known"""
    kinds: tuple[KindComparison, ...] = ()
    differences: tuple[ComparedCompletion, ...] = ()
    """Completions that one of both pays, the shortest first"""
    without_verdict: int = 0
    """Completions on which the verifier gave none: it raised, or took too long"""
    not_compared: int = 0
    """Completions that it was not asked about, for the reason in `problem`"""
    problem: str = ""
    """Why some or all completions were not compared; empty where all were"""

    @property
    def compared(self) -> int:
        """Completions that both have judged."""
        return sum(kind.compared for kind in self.kinds)

    @property
    def agreed(self) -> int:
        """Completions that both judge alike."""
        return self.compared - len(self.differences)

    @property
    def function_is_right(self) -> int:
        """Completions that both judge differently, and the function as they were made."""
        return sum(one.is_judged_right_by_function for one in self.differences)

    @property
    def first_of_function_alone(self) -> ComparedCompletion | None:
        """The shortest completion that the function alone pays."""
        return next((one for one in self.differences if one.is_paid), None)

    @property
    def first_of_verifier_alone(self) -> ComparedCompletion | None:
        """The shortest completion that the verifier alone takes for right."""
        return next((one for one in self.differences if not one.is_paid), None)


def compare_verdicts(
    verifier: str,
    version: str,
    completions: Sequence[ComparedCompletion],
    verdicts: Sequence[bool | None],
    problem: str = "",
) -> VerifierComparison:
    """Both verdicts on each completion, counted by kind.

    Args:
        verifier: its name.
        version: of the verifier.
        completions: all that were to be compared.
        verdicts: of the verifier, on the first of them; None where it gave none.
        problem: why there are fewer verdicts than completions.
    """
    judged = [
        (one, verdict)
        for one, verdict in zip(completions, verdicts, strict=False)
        if verdict is not None
    ]
    kinds = []
    for kind in dict.fromkeys(one.kind for one, _ in judged):
        of_kind = [(one.is_paid, verdict) for one, verdict in judged if one.kind == kind]
        kinds.append(
            KindComparison(
                kind, len(of_kind), of_kind.count((True, False)), of_kind.count((False, True))
            )
        )
    differences = [one for one, verdict in judged if one.is_paid != verdict]
    return VerifierComparison(
        verifier,
        version,
        tuple(kinds),
        tuple(sorted(differences, key=lambda one: (len(one.completion), one.row))),
        without_verdict=len(verdicts) - len(judged),
        not_compared=len(completions) - len(verdicts),
        problem=problem,
    )
