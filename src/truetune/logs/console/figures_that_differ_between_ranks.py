"""Finds figures of the same step that must be equal on all processes of a run, and are printed
differently.

Under data parallelism all processes hold the same weights and, after the all-reduce, the same gradients. A sum or
norm of them that differs from process to process says that gradients are not averaged. Losses may differ: each
process has its own rows. Where weights are sharded (FSDP, ZeRO-3, tensor parallelism), such figures differ by right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

STEP_NUMBER = re.compile(
    r"\b(?:global[_ ]?)?(?:step|iter(?:ation)?)\b\W{0,3}(\d{1,9})", re.IGNORECASE
)
RANK_NUMBER = re.compile(r"\brank[ =:]{0,2}(\d{1,5})\b", re.IGNORECASE)
NUMBER = r"[-+]?\d{1,20}\.?\d{0,20}(?:e[-+]?\d{1,4})?"
EQUAL_FIGURE = re.compile(
    r"\b(?P<name>grad(?:ient)?s?[ _-]?norm|g_?norm|gn|(?:w|weights?|params?|parameters?|model)[ _-]?"
    r"(?:sum|norm|checksum|hash|mean)|checksum)\b"
    rf"[ =:]{{1,4}}(?P<value>{NUMBER})(?![\w.])",
    re.IGNORECASE,
)
GRADIENT_NAME = re.compile(r"grad|g_?norm|^gn$", re.IGNORECASE)
MAX_STEPS = 5_000
"""Of each figure. Chosen, not measured: it bounds the memory, and weights that differ do so from the first steps on"""
MIN_RELATIVE_DIFFERENCE = 1e-4
"""Relative difference from which two printed figures differ: equal weights give equal digits, and this is above what
another order of summation changes"""
MIN_STEPS = 3
"""Chosen, not measured: one or two lines may be of processes that print different steps"""
MIN_DIFFERING_SHARE = 0.8
"""Share of the steps: one that differs may be printed in the middle of accumulation"""


@dataclass(frozen=True, slots=True)
class RankDifference:
    """A figure that must be equal on all processes, and is not."""

    name: str
    ranks: int
    steps: int
    """Steps at which several processes print it"""
    differing: int
    first_step: int
    values: tuple[float, ...]
    """At the last step, by process"""
    relative_first: float
    relative_last: float
    """(largest - smallest) / largest magnitude"""

    @property
    def is_of_gradients(self) -> bool:
        """Is it a figure of gradients, and not of the weights themselves?"""
        return GRADIENT_NAME.search(self.name) is not None


@dataclass(slots=True)
class RankDifferenceReader:
    """Collects the figures, by name, step and process."""

    _values: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)

    def add_line(self, process: str, text: str) -> None:
        """Read one line; `process` is the one that its prefix names, if any."""
        if not process and "rank" not in text and "Rank" not in text:
            return
        step = STEP_NUMBER.search(text)
        if step is None or EQUAL_FIGURE.search(text) is None:
            return
        rank = process or next(iter(RANK_NUMBER.findall(text)), "")
        if not rank:
            return
        for match in EQUAL_FIGURE.finditer(text):
            steps = self._values.setdefault(match["name"], {})
            number = int(step[1])
            if number in steps or len(steps) < MAX_STEPS:
                steps.setdefault(number, {})[rank] = float(match["value"])

    def finish(self) -> tuple[RankDifference, ...]:
        """The figures that differ at nearly every step."""
        differences = (
            _difference_at_nearly_every_step(name, steps) for name, steps in self._values.items()
        )
        return tuple(difference for difference in differences if difference is not None)


def _difference_at_nearly_every_step(
    name: str, steps: dict[int, dict[str, float]]
) -> RankDifference | None:
    """How far a figure differs between processes; None if it does not at nearly every step.

    Args:
        name: as it is printed.
        steps: step -> process -> figure.
    """
    several = {step: ranks for step, ranks in sorted(steps.items()) if len(ranks) > 1}
    apart = {step: _relative_spread(list(ranks.values())) for step, ranks in several.items()}
    differing = [step for step, relative in apart.items() if relative > MIN_RELATIVE_DIFFERENCE]
    if len(differing) < max(MIN_STEPS, MIN_DIFFERING_SHARE * len(several)):
        return None
    last = several[differing[-1]]
    return RankDifference(
        name=name,
        ranks=max(len(ranks) for ranks in several.values()),
        steps=len(several),
        differing=len(differing),
        first_step=differing[0],
        values=tuple(last.values()),
        relative_first=apart[differing[0]],
        relative_last=apart[differing[-1]],
    )


def _relative_spread(values: list[float]) -> float:
    """(largest - smallest) / largest magnitude; 0 where all are 0."""
    largest = max(abs(value) for value in values)
    return (max(values) - min(values)) / largest if largest else 0.0
