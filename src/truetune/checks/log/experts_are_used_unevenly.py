"""The log shows that a few experts get most of the tokens.

## What it does
Reads curves on the use of experts: the largest excess over an even load (`max_violation`, `max_vio`), the largest and
the smallest share (`max_expert_load`, `min_expert_load`), tokens of each expert (`tokens_per_expert/3`), the entropy of
the router, experts that get nothing. It fires if such a curve ends three times worse than it began, by more than chance
(Mann-Kendall z > 3.3), and far from even.

## Why it is bad
Experts that get no token learn nothing, and those that get all of them do the work of a small dense model. The loss
still falls. With expert parallelism, the GPUs of the others wait. A mixture seldom returns from it by itself.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  moe/max_violation: {from: 0.6, to: 9.0, steps: 60, noise: 0.05}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  moe/max_violation: {from: 0.9, to: 0.6, steps: 60, noise: 0.05}
```

## Fix safety
A larger factor for the balance, or a frozen router, changes what the model learns: start again, or from a checkpoint
before the rise.

## References
- pytorch/torchtitan#1246, MoonshotAI/Moonlight#1, verl-project/verl#4103, NVIDIA/Megatron-LM#1545
- Wang et al. 2024, arXiv 2408.15664 (MaxVio: the largest load over the mean load, minus 1)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.metric_direction import HELD_OUT_NAME
from truetune.logs.robust_statistics import fit_robust_trend, medians_of_both_ends
from truetune.logs.run_log import Curve


class LoadMeasure(NamedTuple):
    """A quantity on the use of experts, by its name, and what is bad of it."""

    name: re.Pattern[str]
    worse: Literal["higher", "lower"]
    bound: float
    """It is far from even above (or below) this; 0: whatever its value"""
    meaning: str


ABOUT_EXPERTS = r"(?=.*(?:expert|moe|rout(?:er|ing)|gate))"
# Chosen, not measured: an expert with three times the mean load is usual where a domain is narrow, with four it is not.
MEASURES = (
    LoadMeasure(
        re.compile(r"max_?vio(?:lation)?", re.I), "higher", 3.0, "an expert gets {last:.3g} times more than its part"
    ),
    LoadMeasure(
        re.compile(rf"{ABOUT_EXPERTS}.*(?:dead|idle|unused|inactive)", re.I), "higher", 0.0, "experts get no token"
    ),
    LoadMeasure(
        re.compile(rf"{ABOUT_EXPERTS}.*max.*(?:load|share|frac|prob|usage|util|count|tokens)", re.I), "higher", 0.25,
        "one expert gets far more of the tokens than at first",
    ),
    LoadMeasure(
        re.compile(rf"{ABOUT_EXPERTS}.*min.*(?:load|share|frac|usage|util|count|tokens)", re.I), "lower", 0.0,
        "some experts get next to nothing",
    ),
    LoadMeasure(
        re.compile(rf"{ABOUT_EXPERTS}.*(?:entropy|active_experts|experts_used|used_experts|num_active)", re.I),
        "lower", 0.0, "tokens go to fewer and fewer experts",
    ),
)  # fmt: skip
LOAD_WORDS = r"(?:load|tokens?|count|share|frac\w*|usage|util\w*)"
OF_ONE_EXPERT = re.compile(
    rf"^(?P<stem>[^\d]*(?:expert|moe)[^\d]*{LOAD_WORDS}[^\d]*|[^\d]*{LOAD_WORDS}[^\d]*expert)[/_.\[-]?(?P<number>\d+)\]?$"
    rf"|^(?P<before>[^\d]*expert)[_.]?(?P<inner>\d+)[/_.](?P<after>{LOAD_WORDS})$",
    re.I,
)
"""`tokens_per_expert/3`, `moe/expert_3_load`"""
MIN_POINTS = 10
MIN_GROWTH = 3.0
MIN_TREND_Z = 3.3
"""p < 0.001 (Mann-Kendall)"""
MIN_EXPERTS = 4
MAX_SHARE_OF_ONE = 0.5
"""Of the tokens, at the end, for one of several experts"""
MIN_RISE_OF_SHARE = 0.2
"""Of the largest share. Chosen, not measured: one expert that had most of the tokens from the start changed little"""
MAX_NAME_CHARS = 120
"""Longer names are no curves on experts; it bounds what the patterns cost"""
REMEDY = (
    "raise the factor of the balance (router_aux_loss_coef, moe_aux_loss_coeff), lower the learning rate, or freeze the"
    " router"
)


class ExpertsAreUsedUnevenly(LogRule):
    code = "LOG231"
    fault = Fault.BALANCE_OF_EXPERTS_WRONG
    severity = "warning"
    symptoms = ("loss-does-not-fall",)

    def unmet(self) -> Unmet | None:
        """Unmet where the log has no curve on the use of experts."""
        if self._measured() or self._shares_of_experts():
            return None
        return Unmet("the log has no curve on the use of experts", "log the load of the experts")

    def measurement_if_clean(self) -> str:
        """The levels of the curves at both ends."""
        ends = (
            (name, *medians_of_both_ends(curve.value))
            for name, (_, curve) in self._measured().items()
        )
        texts = [f"{name}: {first:.3g} to {last:.3g}" for name, first, last in ends]
        texts += [
            f"{stem}: {len(curves)} experts" for stem, curves in self._shares_of_experts().items()
        ]
        return "; ".join(texts)

    def findings(self) -> Iterator[Finding]:
        """One finding: on the first curve that shows it."""
        for name, (measure, curve) in self._measured().items():
            first, last = medians_of_both_ends(curve.value)
            if _has_grown_worse(measure, curve, first, last):
                yield self.finding(
                    f"{name} goes from {first:.3g} to {last:.3g}: {measure.meaning.format(last=last)}",
                    REMEDY,
                    total=int(curve.step.size),
                    figure=draw_curves(name, {name: curve}),
                )
                return
        yield from self._finding_on_shares()

    def _finding_on_shares(self) -> Iterator[Finding]:
        """The finding on one of several experts that ends with most of the tokens."""
        for stem, curves in self._shares_of_experts().items():
            first, last = (
                np.array([medians_of_both_ends(curve.value)[end] for curve in curves.values()])
                for end in (0, 1)
            )
            if last.sum() <= 0 or first.sum() <= 0:
                continue
            before, now = float(first.max() / first.sum()), float(last.max() / last.sum())
            if now < MAX_SHARE_OF_ONE or now < before + MIN_RISE_OF_SHARE:
                continue
            name = list(curves)[int(last.argmax())]
            yield self.finding(
                f"{name} gets {now:.0%} of the tokens of {len(curves)} experts at the end, after {before:.0%} at most",
                REMEDY,
                total=len(curves),
                figure=draw_curves(stem, {name: curves[name]}),
            )
            return

    def _measured(self) -> dict[str, tuple[LoadMeasure, Curve]]:
        """The curves on the use of experts, each with what is bad of it."""
        measured = {}
        for name, curve in self.subject.curves.items():
            is_other = HELD_OUT_NAME.match(name) or "loss" in name.lower()
            if is_other or len(name) > MAX_NAME_CHARS:
                continue
            measure = next((one for one in MEASURES if one.name.search(name)), None)
            finite = curve.finite()
            if measure is not None and finite.step.size >= MIN_POINTS:
                measured[name] = (measure, finite)
        return measured

    def _shares_of_experts(self) -> Mapping[str, dict[str, Curve]]:
        """The curves of single experts, by what their names have in common."""
        groups: dict[str, dict[str, Curve]] = {}
        for name, curve in self.subject.curves.items():
            match = OF_ONE_EXPERT.match(name) if len(name) <= MAX_NAME_CHARS else None
            finite = curve.finite()
            if match is None or HELD_OUT_NAME.match(name) or finite.step.size < MIN_POINTS:
                continue
            stem = match["stem"] or f"{match['before']}_*_{match['after']}"
            groups.setdefault(stem, {})[name] = finite
        return {stem: curves for stem, curves in groups.items() if len(curves) >= MIN_EXPERTS}


def _has_grown_worse(measure: LoadMeasure, curve: Curve, first: float, last: float) -> bool:
    """Does a curve end three times worse than it began, far from even, and by more than chance?"""
    trend = fit_robust_trend(curve).z
    if measure.worse == "higher":
        return last >= max(measure.bound, MIN_GROWTH * first) and last > 0 and trend >= MIN_TREND_Z
    return first > 0 and last <= first / MIN_GROWTH and trend <= -MIN_TREND_Z
