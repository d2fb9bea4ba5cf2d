"""A training by rewards raises no reward on a miniature, or gives all answers the same reward.

## What it does
Trains a miniature of the model (same architecture, few weights) by the run's own trainer, twice. First the answers are
given, right and wrong ones, instead of sampled, and scored by the run's own reward functions: the right ones must
become likelier. Then the trainer samples by itself and is given a reward that can be learned: 1 where an answer begins
with a certain word, which the miniature says in one of four answers at the start. That share must rise.

It tells apart why nothing rises: no sampled token is in the loss; the loss does not depend on the model; the loss has
the opposite sign; the sampler answers with other weights than those that are trained; all answers of a group are alike.
Where the run's own functions give the same to all answers, right ones in seven forms and wrong ones, it is a warning; a
note where they give 0, for they may pay for another form.

## Why it is bad
The loss of such a training is near 0 in sound runs and in broken ones, and a reward that stays where it is looks like a
task that is too hard. GPUs sample for days, and nothing is learned.

## Example

```python
class Masked(trl.GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        return {**output, "completion_mask": output["completion_mask"] * 0}

run = grpo(Masked)
```

## Use instead

```python
run = grpo()
```

## Fix safety
There is no automatic fix. Once it is corrected, the share of the rewarded word rises within sixty steps.

## References

- volcengine/verl#7495, NVIDIA-NeMo/RL#3792, huggingface/trl#4976
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.recitation.recitation_record import (
    GoldenRollouts,
    LearnableReward,
    RewardTrials,
    read_recitation,
)
from truetune.checks.rule import RecitationRule

# Steps of which the mean reward is taken: a step of four groups scatters by 0.1.
LAST_STEPS = 5
# Chosen between what was measured on miniatures of two layers: sound trainers rise by 0.4 and more in sixty
# steps, broken ones by less than 0.1 (tests/rehearsal/test_rewards.py).
MIN_RISE = 0.25
# A group of one reward teaches nothing; sound samplers give more than one in nine of ten groups.
MIN_SPREAD = 0.2
# As many as a rehearsal takes where its time is not up: fewer may be too few for a model that learns slowly.
ALL_STEPS = 60
PAID_ALIKE_REMEDY = (
    "try the functions on answers that should and should not be paid: truetune reward"
    " FILE.py:FUNCTION --data ROWS"
)


class RewardDoesNotRiseInMiniature(RecitationRule):
    code = "REC011"
    fault = Fault.COMPLETIONS_GET_EQUAL_REWARDS
    symptoms = ("nothing-is-learned",)
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        trials = _read_trials(self)
        own, learned = trials.get("own", GoldenRollouts()), trials.get("learned")
        cause = _why_nothing_rises(own, learned) if learned else None
        if cause is not None and learned:
            given = learned["rewards"]
            message, remedy = cause
            yield self.finding(
                message,
                remedy,
                evidence=[
                    f"mean reward of the sampled answers: {given[0]:.2f} at first,"
                    f" {fmean(given[-LAST_STEPS:]):.2f} in the end, {len(given)} steps",
                    f"probability of the rewarded word by the policy: {learned['policy'][0]:.2f} to"
                    f" {learned['policy'][-1]:.2f}",
                    *_lines_on_margins(own),
                ],
            )
        elif own.get("tried") and own["spread"] == 0:
            # 0 for all may be a form of answers that is not among the seven.
            yield self.finding(
                f"the run's reward functions give {own['right']:.3g} to each of {own['tried']} answers:"
                " right ones in seven forms, and wrong ones",
                PAID_ALIKE_REMEDY,
                severity="warning" if own["right"] else "info",
            )

    def unmet(self) -> Unmet | None:
        """Unmet where no training by rewards was rehearsed, or the time was up too early."""
        trials = _read_trials(self)
        if not trials:
            return Unmet("it is about trainings by rewards, which sample their answers")
        if "nothing" in trials:
            return Unmet(trials["nothing"])
        learned = trials["learned"]
        steps = len(learned["rewards"])
        if not steps:
            return Unmet("the time was up before the miniature was trained")
        if not _did_rise(learned) and _why_nothing_rises(trials["own"], learned) is None:
            return Unmet(
                f"{steps} steps were made before the time was up, and too few show nothing"
            )
        return None

    def measurement_if_clean(self) -> str:
        """How far the reward rose that can be learned."""
        learned = _read_trials(self)["learned"]
        given = learned["rewards"]
        return (
            f"a reward that can be learned rises from {learned['policy'][0]:.2f} to"
            f" {fmean(given[-LAST_STEPS:]):.2f} in {len(given)} steps"
        )


def _read_trials(rule: RewardDoesNotRiseInMiniature) -> RewardTrials:
    """What was learned by rewards; empty where nothing was."""
    return read_recitation(rule.subject).get("rewards", RewardTrials())


def _did_rise(learned: LearnableReward) -> bool:
    """Has the reward of the sampled answers risen?"""
    # From the policy's own share: the mean of one step's few groups scatters.
    return fmean(learned["rewards"][-LAST_STEPS:]) >= learned["policy"][0] + MIN_RISE


def _why_nothing_rises(own: GoldenRollouts, learned: LearnableReward) -> tuple[str, str] | None:
    """(message, remedy) of the first cause that fits; None where the reward rises, and right answers with it."""
    start, end = learned["policy"][0], learned["policy"][-1]
    fallen = [pair for pair in own.get("margins", ()) if pair[1] < pair[0]]
    if learned["in_loss"] == 0:
        return (
            "no reward rises in a miniature: no sampled token is in the loss",
            "check completion_mask (and tool_mask): 1 for each token that the model sampled",
        )
    if learned["gradient"] == 0.0:
        return (
            "no reward rises in a miniature: the gradient of the loss is 0 in each step",
            "check that the loss multiplies the log-probabilities, with their gradient, by the advantages",
        )
    # The reward itself falls, or the answers that it pays do.
    if end < start / 2 or 2 * len(fallen) > len(own.get("margins", ())) > 0:
        return (
            "training makes the rewarded answers less likely: in a miniature their probability falls",
            "check the sign of the loss and of the advantages: the loss is -(advantage x log-probability)",
        )
    if _did_rise(learned):
        return None
    if end >= start + MIN_RISE:
        return (
            "the policy learns, and the sampled answers stay as they were: the sampler has other"
            " weights than those that are trained",
            "load the trained weights into the sampler before each generation (an engine's weight"
            " update, the adapter that it is given, a copy of the model)",
        )
    if learned["spread"] < MIN_SPREAD:
        return (
            "no reward rises in a miniature: nearly all sampled answers of a group are alike, so that"
            " their advantages are 0",
            "sample with temperature 1, and without a narrow top_p or top_k",
        )
    if len(learned["rewards"]) < ALL_STEPS:
        return None
    return (
        "no reward rises in a miniature, though its loss has a gradient",
        "compare the advantages with the rewards, and the tokens in the loss with the sampled ones:"
        " truetune run -- YOUR COMMAND judges both",
    )


def _lines_on_margins(own: GoldenRollouts) -> Iterator[str]:
    """What became of right answers against wrong ones; nothing where that was not tried."""
    margins = own.get("margins", ())
    if margins:
        before, after = (fmean(pair[place] for pair in margins) for place in (0, 1))
        yield (
            f"right answers against wrong ones, scored by the run's own functions: {before:.1f} to"
            f" {after:.1f} nats"
        )
