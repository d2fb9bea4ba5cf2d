"""Why rules on rollouts can't judge, as several of them say it."""

from __future__ import annotations

from truetune.checks.judgement import Unmet

NO_SAMPLED_IDS = Unmet(
    "what the sampler gave is not known: it is not the trainer's, or tools take part"
)
NO_ENDS = Unmet(
    "it is not known which completions ended: neither what the sampler gave nor its stops"
)
NO_PASS = Unmet("no micro-batch of the loss was recorded")
NO_REWARDS = Unmet("the rewards were not recorded")
