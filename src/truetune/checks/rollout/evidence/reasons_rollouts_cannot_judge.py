"""Why rules on rollouts can't judge, as several of them say it."""

from __future__ import annotations

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.judgement import Unmet
from truetune.probe.rollout_step import DISTILLATION

NO_SAMPLED_IDS = Unmet(
    "what the sampler gave is not known: it is not the trainer's, or tools take part"
)
NO_ENDS = Unmet(
    "it is not known which completions ended: neither what the sampler gave nor its stops"
)
NO_PASS = Unmet("no micro-batch of the loss was recorded")
NO_REWARDS = Unmet("the rewards were not recorded")
OF_DISTILLATION = Unmet("a distillation has no rewards, and laws ask its loss before the run")


def reason_without_rewards_or_loss(run: RolloutRun, reason: Unmet) -> Unmet:
    """The reason, or that of a distillation: it has neither rewards nor a loss of them to record."""
    kinds = {step.settings.loss_type for step in run.steps}
    return OF_DISTILLATION if kinds == {DISTILLATION} else reason
