"""The chosen answers become less likely together with the rejected ones.

## What it does
Follows `logps/chosen` and `logps/rejected`, and their rewards, which start at 0 and show the same without the effect of
row lengths. It fires if both sides fall until the last fifth of the run by more than five times the noise, and the
chosen answers lose 20 % of their log-probability. It warns from a loss of 50 %. If only rewards are logged, it warns if
the chosen reward falls by 10 and the margin grows by less than half of that. At the usual beta of 0.1, a fall of 10 is
a log-probability that is lower by 100 per answer.

## Why it is bad
The loss only uses the difference of both sides, so it falls while the model unlearns both answers. Some fall is usual
after SFT on the same answers. A large one moves probability to texts that nobody wrote.

## Example
```yaml
curve:
  logps/chosen: {from: -180, to: -320, steps: 60, noise: 4}
  logps/rejected: {from: -150, to: -500, steps: 60, noise: 4}
  rewards/margins: {from: 0, to: 20, steps: 60, noise: 0.5}
```

## Use instead
```yaml
curve:
  logps/chosen: {from: -180, to: -178, steps: 60, noise: 4}
  logps/rejected: {from: -150, to: -170, steps: 60, noise: 4}
  rewards/margins: {from: 0, to: 2, steps: 60, noise: 0.1}
```

## Fix safety
Lower the learning rate, raise `beta`, or add an SFT term on the chosen answers (`loss_type=["sigmoid",
"sft"]` in TRL, `rpo_alpha` before 0.20; `pref_ftx` in LLaMA-Factory). Each of them makes the margin grow more slowly.

## References
- huggingface/trl#800, eric-mitchell/direct-preference-optimization#32, hiyouga/LlamaFactory#6153
- Pal et al. 2024, arXiv 2402.13228
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import LOGGED_BY, explain_too_short_curve
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import noise_sigma
from truetune.logs.run_log import Curve

MIN_POINTS = 10
"""Records. Chosen by hand: the levels are medians of three records and of a fifth, which take two at least"""
# Chosen, not measured: DPO lowers both log-probabilities a little by its nature; at half, that alone would be noted.
NOTED_FALL, LARGE_FALL = 0.2, 0.5
# Chosen, not measured: chosen rewards of healthy runs end between +3 and -3 (published logs of zephyr and tulu).
MIN_REWARD_FALL = 10.0
MAX_FIRST_REWARD = 3.0
"""Reward, up or down, within which the policy stood at its reference at first: no healthy run ends above it"""
LOSSES_WITH_REFERENCE = frozenset(
    ("sigmoid", "hinge", "ipo", "robust", "apo_zero", "apo_down", "kto", "bco_pair")
)
"""TRL's losses of DPO, and LLaMA-Factory's; simpo and orpo have none"""
# Logged figures are rounded to three or four digits, and a mean over uneven batches moves the ratio by less than this.
# A reward that is counted from a reference leaves it within some records: the reference's part differs by row.
MAX_RATIO_SPREAD = 0.02
"""By how much of itself the ratio of reward to log-probability may differ between records, without a reference"""


def _curve_names_of_both_sides(group: str) -> tuple[str, str]:
    """The names of the chosen and the rejected curve of a group, `logps` or `rewards`."""
    return f"{group}/chosen", f"{group}/rejected"


class DpoChosenFalls(LogRule):
    code = "LOG025"
    fault = Fault.PREFERENCES_NOT_LEARNED
    severity = "warning"
    since = "0.1.0"
    kinds = ("preference",)
    moot_where = ("preference-rate-far-too-high",)
    least = MIN_POINTS

    def unmet(self) -> Unmet | None:
        """What is missing: both log-probabilities, or both rewards."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        group = self._curve_group_that_measures_fall()
        lacking = [
            name for name in _curve_names_of_both_sides(group) if not self.subject.curve(name)
        ]
        if lacking:
            return Unmet(
                f"the log has no {', '.join(lacking)}",
                next((LOGGED_BY[name] for name in lacking if name in LOGGED_BY), ""),
            )
        few = min(self.count_finite_records(name) for name in _curve_names_of_both_sides(group))
        return (
            explain_too_short_curve(few, MIN_POINTS, f"{group}/chosen")
            if few < MIN_POINTS
            else None
        )

    def measurement_if_clean(self) -> str:
        """From where to where both curves go, as medians."""
        named = (
            (name, _first_and_last_level(self.subject.curve(name).finite()))
            for name in _curve_names_of_both_sides(self._curve_group_that_measures_fall())
        )
        return "; ".join(
            f"{name} goes from {first:.4g} to {last:.4g}" for name, (first, last) in named
        )

    def findings(self) -> Iterator[Finding]:
        if self._curve_group_that_measures_fall() == "rewards":
            yield from self._findings_on_falling_rewards()
        else:
            yield from self._findings_on_falling_logps()

    def _curve_group_that_measures_fall(self) -> str:
        """The group of curves that the fall is measured by: `logps`, or `rewards` where they alone
        are logged.
        """
        log = self.subject
        has_logps = all(log.curve(name) for name in _curve_names_of_both_sides("logps"))
        has_rewards = all(log.curve(name) for name in _curve_names_of_both_sides("rewards"))
        return "rewards" if has_rewards and not has_logps else "logps"

    def _findings_on_falling_rewards(self) -> Iterator[Finding]:
        """Findings where both rewards fall together: the reward is beta times what the
        log-probability gained over the reference.
        """
        log = self.subject
        chosen, rejected = (
            log.curve(name).finite() for name in _curve_names_of_both_sides("rewards")
        )
        if log.kind != "preference" or min(chosen.step.size, rejected.step.size) < MIN_POINTS:
            return
        (first, last), others = _first_and_last_level(chosen), _first_and_last_level(rejected)
        fall = first - last
        opened = (last - others[1]) - (first - others[0])
        # SimPO and ORPO count from log-probabilities and begin far from 0: there a fall is another figure.
        if abs(first) > MAX_FIRST_REWARD or fall < MIN_REWARD_FALL or opened >= fall / 2:
            return
        if not self._fell_beyond_noise("chosen") or not self._fell_beyond_noise("rejected"):
            return
        yield self.finding(
            f"the reward of the chosen answers falls from {first:.3g} to {last:.3g}, together with that of the rejected"
            f" ones ({others[0]:.3g} to {others[1]:.3g}): the model unlearns both",
            "lower learning_rate, raise beta, or add an SFT term on the chosen answers (loss_type=['sigmoid', 'sft'] in"
            " TRL, pref_ftx in LLaMA-Factory)",
            evidence=(
                f"at a beta of 0.1, a reward of {last:.3g} is a log-probability that is lower by"
                f" {abs(last) / 0.1:,.0f} per answer",
            ),
            figure=draw_curves(
                "reward",
                dict(zip(_curve_names_of_both_sides("rewards"), (chosen, rejected), strict=True)),
            ),
        )

    def _findings_on_falling_logps(self) -> Iterator[Finding]:
        """Findings where both log-probabilities fall, the chosen one by a large part of itself."""
        log = self.subject
        chosen, rejected = log.curve("logps/chosen").finite(), log.curve("logps/rejected").finite()
        if log.kind != "preference" or min(chosen.step.size, rejected.step.size) < MIN_POINTS:
            return
        (first, last), others = _first_and_last_level(chosen), _first_and_last_level(rejected)
        lost = (first - last) / abs(first) if first else 0.0
        if (
            lost < NOTED_FALL
            or not self._fell_beyond_noise("chosen")
            or not self._fell_beyond_noise("rejected")
        ):
            return
        yield self.finding(
            f"the chosen answers become less likely: their log-probability falls by {lost:.0%} ({first:.4g} to"
            f" {last:.4g}), that of the rejected ones goes from {others[0]:.4g} to {others[1]:.4g}",
            self._remedy(),
            severity="warning"
            if lost >= LARGE_FALL and not self._reference_rewards_start_away_from_zero()
            else "info",
            figure=draw_curves(
                "log-probability", {"logps/chosen": chosen, "logps/rejected": rejected}
            ),
        )

    def _remedy(self) -> str:
        """The remedy: beta holds the policy at its reference; a loss without a reference has
        nothing to be held at.
        """
        log = self.subject
        has_none = log.facts.get("loss_type") == "simpo" or (
            self._rewards_start_away_from_zero()
            and self._are_rewards_multiples_of_logps()
            and not self._is_loss_with_reference_configured()
        )
        if not has_none and self._rewards_start_away_from_zero():
            return (
                "first check that the reference is the model that training starts from: the rewards start far from 0"
                " (rewards-not-zero-at-first); then lower learning_rate or raise beta"
            )
        if has_none:
            return (
                "lower learning_rate (SimPO: 3e-7 to 1e-6), or add an SFT term on the chosen answers (cpo_alpha in"
                " TRL); this loss has no reference model, so a larger beta does not hold the answers"
            )
        return (
            "lower learning_rate, raise beta, or add an SFT term on the chosen answers (loss_type=['sigmoid', 'sft'] in"
            " TRL, pref_ftx in LLaMA-Factory)"
        )

    def _reference_rewards_start_away_from_zero(self) -> bool:
        """Do rewards that are counted from a reference begin away from 0? Then that explains the
        fall.
        """
        return self._rewards_start_away_from_zero() and (
            self._is_loss_with_reference_configured() or not self._are_rewards_multiples_of_logps()
        )

    def _rewards_start_away_from_zero(self) -> bool:
        """Do the rewards begin far from 0, where rewards counted from the policy's own beginning
        stand?
        """
        rewards = self.subject.curve("rewards/chosen").finite()
        return (
            bool(rewards.value.size) and abs(_first_and_last_level(rewards)[0]) > MAX_FIRST_REWARD
        )

    def _are_rewards_multiples_of_logps(self) -> bool:
        """Is each side's reward one fixed multiple of its log-probability, as in SimPO, CPO and
        ORPO (no reference)?
        """
        return all(self._is_reward_multiple_of_logp(side) for side in ("chosen", "rejected"))

    def _is_reward_multiple_of_logp(self, side: str) -> bool:
        """Is the reward of this side the same multiple of its log-probability in each record?"""
        rewards, logps = (
            self.subject.curve(f"{kind}/{side}").finite() for kind in ("rewards", "logps")
        )
        both = np.intersect1d(rewards.step, logps.step)
        if both.size < MIN_POINTS or both.size != rewards.step.size or both.size != logps.step.size:
            return False
        ratios = rewards.value / np.where(logps.value == 0, np.nan, logps.value)
        middle = float(np.nanmedian(ratios))
        return bool(np.nanmax(np.abs(ratios - middle)) <= MAX_RATIO_SPREAD * abs(middle))

    def _is_loss_with_reference_configured(self) -> bool:
        """Do the settings beside the log name a loss that has a reference? They say more than how
        its rewards begin.
        """
        loss = self.subject.files_beside.setting("loss_type")
        return loss is not None and loss.value in LOSSES_WITH_REFERENCE

    def _fell_beyond_noise(self, side: str) -> bool:
        """Did this side fall by five times the noise of the medians? Its reward begins at 0 by
        definition.
        """
        for name, apart in ((f"rewards/{side}", 0.0), (f"logps/{side}", 1 / 3)):
            curve = self.subject.curve(name).finite()
            if curve.step.size >= MIN_POINTS:
                first, last = _first_and_last_level(curve)
                sure = 5 * noise_sigma(curve.value) * math.sqrt(apart + 5 / curve.step.size)
                if (first if apart else 0.0) - last > sure:
                    return True
        return False


def _first_and_last_level(curve: Curve) -> tuple[float, float]:
    """Medians of the first three records and of the last fifth."""
    return float(np.median(curve.value[:3])), float(
        np.median(curve.value[-max(3, curve.value.size // 5) :])
    )
