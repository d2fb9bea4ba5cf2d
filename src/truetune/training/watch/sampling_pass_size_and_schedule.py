"""Decides how large the sampling passes of a run are and when they come, so that they keep to their
share of its time.

Prompts and limit are chosen once, before the first pass, from what a few small forward passes take: answers of other
lengths could not be compared. From then on only the distance of the passes changes, with the times that were measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

# Chosen, not measured: enough to see a trend. Twice as many leave each fewer prompts within the
# same budget; with half of them a fault is seen late.
PASSES_BETWEEN = 5
"""In between, where the user names no distance; and the first and the last one"""
# Chosen, not measured: with 4 prompts one answer is 25 points of a share; below 32 tokens many
# answers cannot end, and "stopped" would mean nothing.
MIN_PROMPTS, MIN_NEW_TOKENS = 8, 32
"""Prompts and new tokens that a pass keeps, however short the run"""
# A backward pass costs two forward ones (Kaplan 2020, section 2.1); checkpointing adds up to one
# more, which is not known here and errs on the safe side.
FORWARDS_PER_STEP = 3.0
"""What a training step costs, in forward passes over its rows"""


@dataclass(frozen=True)
class PassSize:
    """How many prompts and new tokens each sampling pass of a run has."""

    prompts: int
    limit: int
    """New tokens"""
    looks: int
    """That are planned, with the first and the last one"""
    seconds: float
    """What one is expected to take"""
    note: str
    """What was made smaller and why; empty where nothing was"""


@dataclass(frozen=True)
class PassCosts:
    """What small forward passes took, by which passes are sized."""

    row: float
    """Seconds of a forward pass over a row of the data"""
    prompt: float
    """Seconds of reading a prompt twice, once with its reference"""
    token: float
    """Seconds of one new token for all prompts"""


def choose_pass_size(
    probe: PassCosts,
    *,
    prompts: int,
    limit: int,
    needed_tokens: int,
    planned: int,
    rows: int,
    budget: float,
    sampled: int = 0,
) -> PassSize:
    """The largest passes whose whole time is within a share of the run's, which is estimated.

    Args:
        probe: what forward passes and tokens cost here.
        prompts: that there are.
        limit: new tokens that the user allows.
        needed_tokens: new tokens that most references have.
        planned: passes, with the first and the last one.
        rows: that the run trains on, in this process, with repetition.
        budget: the share of the run's time.
        sampled: new tokens that the training itself samples for each row, at most; 0 for all but GRPO.
    """
    run = FORWARDS_PER_STEP * probe.row * rows
    # Most of a training by rewards: SmolLM2 on a CPU took 1,616 s, of which the passes above are 439.
    run += probe.token / max(1, prompts) * sampled * rows
    few, short, needed_tokens = (
        min(MIN_PROMPTS, prompts),
        min(MIN_NEW_TOKENS, limit),
        min(max(needed_tokens, MIN_NEW_TOKENS), limit),
    )
    # What is given up first: passes, then tokens, then prompts. A trend over fewer points is still
    # one; fewer prompts make every point noisier.
    smaller = (
        (3, prompts, limit),
        (3, prompts, needed_tokens),
        (2, prompts, needed_tokens),
        (2, few, needed_tokens),
        (2, few, short),
    )
    for least, count, tokens in smaller:
        cost = probe.prompt * count + probe.token * tokens
        # The first and the last pass are always made: before and after is the least that watching
        # has to show.
        looks = max(2, int(min(planned, budget * run / cost)))
        if looks >= min(least, planned) and looks * cost <= budget * run:
            break
    changes = [
        f"{was:,} {name} become {now:,}"
        for name, was, now in (
            ("planned sampling passes", planned, looks),
            ("prompts", prompts, count),
            ("new tokens", limit, tokens),
        )
        if now < was
    ]
    why = (
        f"the run is expected to take {run:,.0f} s, a sampling pass {cost:,.2g} s, all passes at most"
        f" {budget:.0%} of it"
    )
    return PassSize(count, tokens, looks, cost, f"{'; '.join(changes)}: {why}" if changes else "")


@dataclass
class PassSchedule:
    """Decides at which steps to sample, by the times that were measured."""

    total: int
    """Steps of the run"""
    budget: float
    every: int
    """Steps between passes, at least"""
    looks: list[tuple[int, float]] = field(default_factory=list)
    """(step, seconds) of those taken"""
    sizing: float = 0.0
    """Seconds that the choice of their size took"""
    expected: float = 0.0
    """Seconds that a pass was expected to take"""

    @property
    def seconds_of_all_passes(self) -> float:
        """Seconds of all passes so far, and of choosing their size."""
        return self.sizing + sum(seconds for _, seconds in self.looks)

    @property
    def seconds_of_next_pass(self) -> float:
        """Seconds that the next pass will take; the first one took time to get warm."""
        last = self.looks[-1][1] if self.looks else self.expected
        # The first pass compiles kernels and fills caches, so its time alone would forbid the
        # second. Later ones are taken as they are.
        return (last + min(last, self.expected)) / 2 if len(self.looks) == 1 else last

    def passes_left(self, step: int, done: int, elapsed: float) -> float:
        """How many passes may follow a step, the last one of the run among them.

        `done` steps took `elapsed` seconds of this process, those of its passes included.
        """
        # The seconds of a step without passes, times all steps: what the whole run takes, from what
        # it took so far.
        run = (elapsed - self.seconds_of_all_passes) / max(1, done) * (
            done + self.total - step
        ) + self.seconds_of_all_passes
        return (self.budget * run - self.seconds_of_all_passes) / max(
            self.seconds_of_next_pass, 1e-9
        )

    def is_due(self, step: int, done: int, elapsed: float) -> bool:
        """Is a pass due at this step? Always at the end, before it where that leaves enough time
        for the end.
        """
        # 2, for the one at the end must be paid for as well.
        return step >= self.total or self.passes_left(step, done, elapsed) >= 2

    def next_sampling_step(self, step: int, left: float) -> int:
        """The next step to ask at, where `left` looks may follow, the last one at the end."""
        distance = max(self.every, ceil((self.total - step) / max(1, int(min(left, self.total)))))
        following = step + distance
        # A pass shortly before the last one shows nothing that the last one does not.
        return self.total if following + distance / 2 > self.total else following
