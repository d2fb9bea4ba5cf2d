"""Rewards are far from 0 at the start of a preference run: the reference is not the model it starts from.

## What it does
Reads `rewards/chosen` and `rewards/rejected` in the first three records of a run that was not resumed. A policy that
starts as its reference has rewards of about 0. The rule warns if both are on the same side of 0 by more than 1 from the
first record on, and by more than three times the spread of these records. Losses without a reference (CPO, SimPO, ORPO)
log rewards that are their log-probabilities times beta, and are not judged.

## Why it is bad
A reward is beta times the difference of the log-probabilities of policy and reference. If the reference's were computed
with another model, they contain a difference that no pair can change. Examples are log-probabilities that were cached
before the SFT, the base instead of the tuned model, another precision or another chat template. The loss falls while
the policy only makes up for that, and the answers do not change.

## Example
```yaml
curve:
  rewards/chosen: {from: -14.0, to: -13.0, steps: 60, noise: 0.2}
  rewards/rejected: {from: -13.9, to: -14.4, steps: 60, noise: 0.2}
  rewards/margins: {from: -0.1, to: 1.4, steps: 60, noise: 0.2}
```

## Use instead
```yaml
curve:
  rewards/chosen: {from: 0.0, to: 0.4, steps: 60, noise: 0.05}
  rewards/rejected: {from: 0.0, to: -0.9, steps: 60, noise: 0.05}
  rewards/margins: {from: 0.0, to: 1.3, steps: 60, noise: 0.05}
```

## Fix safety
There is no automatic fix. Delete the cached log-probabilities and compute them with the model that training starts
from, or pass that model as the reference. Rewards then start at 0, and the loss at ln 2.

## References
- Rafailov et al. 2023, arXiv 2305.18290, equation 7; huggingface/trl `precompute_ref_log_probs`
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.detect_resumes_without_state import find_restarts
from truetune.logs.facts_in_files_beside_log import FilesBeside
from truetune.logs.run_log import Curve, Floats, RunLog

FIRST = 3
"""Records that say where the rewards begin"""
LARGE = 1.0
"""Reward from which the first record is no result of the first steps: at beta 0.1 it is a difference of 10 nats"""
SPREADS = 3
"""Times the spread of the first records by which they have to be off 0"""
CHANGED = 0.01
"""Share by which rewards over log-probabilities vary where they are no fixed multiple of them"""
EARLY = 0.1
"""Share of the run at which the first record has to stand"""
EARLY_STEPS = 20
"""Steps up to which it may stand later, where the log has a record each so many steps. Chosen, not measured: at usual
rates rewards are below 0.1 then; half would leave out logging_steps=20, and double may be a run that diverged"""


class RewardsNotZeroAtFirst(LogRule):
    code = "LOG051"
    fault = Fault.REFERENCE_IS_NOT_THE_START
    severity = "warning"
    kinds = ("preference",)
    needs = ("rewards/chosen", "rewards/rejected")
    least = FIRST

    def measurement_if_clean(self) -> str:
        """The mean of the first rewards of each side."""
        chosen, rejected = (_first_rewards(self.subject, side) for side in ("chosen", "rejected"))
        return f"the first rewards are {np.mean(chosen):.3g} (chosen) and {np.mean(rejected):.3g} (rejected)"

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        chosen, rejected = (_first_rewards(log, side) for side in ("chosen", "rejected"))
        if log.kind != "preference" or min(chosen.size, rejected.size) < FIRST:
            return
        if not _begins_with_the_run(log) or _are_rewards_multiples_of_logps(log):
            return
        centres = (float(np.mean(chosen)), float(np.mean(rejected)))
        spread = max(float(np.std(chosen)), float(np.std(rejected)))
        if min(map(abs, centres)) < max(LARGE, SPREADS * spread) or centres[0] * centres[1] < 0:
            return
        yield self.finding(
            f"rewards are {centres[0]:.3g} (chosen) and {centres[1]:.3g} (rejected) in the first records, but are 0 for"
            " a policy that starts as its reference",
            _remedy(log.files_beside),
            evidence=(
                "the reference is another model than the trained one: an older cache, the base of an SFT model,"
                " or other weights, precision or template",
            ),
            cases=[
                Case(one.text, file=one.file, line=one.line or None)
                for one in log.files_beside.settings_named("reference_without_adapter")
            ],
            figure=draw_curves(
                "rewards",
                {
                    "rewards/chosen": log.curve("rewards/chosen").finite(),
                    "rewards/rejected": log.curve("rewards/rejected").finite(),
                },
            ),
        )


def _remedy(beside: FilesBeside) -> str:
    """The remedy, by what the files beside the log say of the reference."""
    switched = next(beside.settings_named("reference_without_adapter"), None)
    if switched is not None:
        return (
            f"{switched.place} computes the reference with the adapter disabled, which is the base without SFT: merge"
            " the SFT adapter before training and train a new one on top, or load the SFT model a second time, frozen,"
            " as ref_model"
        )
    own = "pass the model that training starts from, not its base, as the reference (ref_model)"
    caches = any(one.value is True for one in beside.settings_named("precompute_ref_log_probs"))
    # Where the settings are available, and none caches anything, a cache is not the cause.
    if beside.settings and not caches:
        return f"{own}; with a LoRA on a tuned model, merge that model's adapter first (merge_and_unload)"
    return (
        "compute the reference's log-probabilities with the model that training starts from: delete cached ones"
        f" (precompute_ref_log_probs, reference_chosen_logps), and {own}"
    )


def _first_rewards(log: RunLog, side: str) -> Floats:
    """The first rewards of one side."""
    return log.curve(f"rewards/{side}").finite().value[:FIRST]


def _begins_with_the_run(log: RunLog) -> bool:
    """Does the log begin with the run? Behind a restart rewards continue where they were."""
    if find_restarts(log):
        return False
    step = log.curve("rewards/chosen").finite().step
    if step[0] <= EARLY * step[-1] or log.is_numbered:
        return True
    # A short run has few records: the first one stands where the first interval ends.
    return bool(step[0] <= min(EARLY_STEPS, float(np.diff(step).min())))


def _are_rewards_multiples_of_logps(log: RunLog) -> bool:
    """Are the rewards a fixed multiple of the log-probabilities, as without a reference?"""
    if log.curve("log_odds_chosen") or log.curve("nll_loss"):
        return True
    rewards, sums = log.curve("rewards/chosen").finite(), log.curve("logps/chosen").finite()
    if not sums:
        return False
    ratios = _rewards_over_logps(rewards, sums)
    return ratios.size > 0 and float(np.std(ratios)) < CHANGED * abs(float(np.mean(ratios)))


def _rewards_over_logps(rewards: Curve, sums: Curve) -> Floats:
    """Rewards over log-probabilities at the same steps."""
    _, ours, theirs = np.intersect1d(rewards.step, sums.step, return_indices=True)
    below = sums.value[theirs]
    keep = below != 0
    ratios: Floats = rewards.value[ours][keep] / below[keep]
    return ratios
