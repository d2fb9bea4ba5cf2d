"""The importance correction weighs most answers down to nothing.

## What it does
Reads the mean importance ratio of trainer and sampler after the correction's clip or mask
(`sampling/importance_sampling_ratio/mean` of TRL, `rollout_corr/rollout_is_mean` of verl). It warns if the median over
the run is below 0.3, and gives a note below 0.6.

## Why it is bad
Without a mismatch the mean is 1. TRL's default multiplies the ratios of all tokens of an answer and drops those above
3, so a difference of 0.01 per token in one direction is a ratio of 3 after 100 tokens: long answers are dropped, or
count next to nothing, and the run learns from the short ones.

## Example
```yaml
curve:
  reward: {from: 0.3, to: 0.31, steps: 40, noise: 0.01}
  sampling/importance_sampling_ratio/mean: {from: 0.2, to: 0.15, steps: 40, noise: 0.01}
```

## Use instead
```yaml
curve:
  reward: {from: 0.3, to: 0.6, steps: 40, noise: 0.01}
  sampling/importance_sampling_ratio/mean: {from: 0.98, to: 0.97, steps: 40, noise: 0.01}
```

## Fix safety
Ratios by token with a cap (`vllm_importance_sampling_mode: token_truncate`) keep all answers, with a small bias. First
make sure that the mismatch is rounding: sampling cut by top_p, or old weights, give the same picture.

## References
- huggingface/trl#4772 (0.012 per token, 100 tokens: the default drops the answer), huggingface/trl#5815 (0.57 by the
  sum over tokens, 0.99 by their mean), huggingface/trl#5231
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.curves_of_reward_training import (
    IMPORTANCE_RATIOS,
    first_known_curve,
)
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve

MIN_RECORDS = 5
# TRL's report with the default has 0.57, and learns; verl's guide calls 0.5 to 2 the range to stay in.
MAX_RATIO_OF_WARNING, MAX_RATIO_OF_NOTE = 0.3, 0.6


class ImportanceCorrectionDropsAnswers(LogRule):
    code = "LOG189"
    fault = Fault.TRAINED_COMPLETIONS_NOT_AS_SAMPLED
    symptoms = ("reward-does-not-rise", "nothing-is-learned")
    severity = "warning"
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where no importance ratio is logged."""
        if (unmet := super().unmet()) is not None:
            return unmet
        if self._ratio()[1]:
            return None
        return Unmet(f"the log has no {MIN_RECORDS} records of an importance ratio")

    def measurement_if_clean(self) -> str:
        """The median of the ratio."""
        name, curve = self._ratio()
        return f"{name} is {np.median(curve.value):.2f} in the median"

    def findings(self) -> Iterator[Finding]:
        """The finding on small ratios."""
        name, curve = self._ratio()
        if self.subject.kind != "reinforcement" or not curve:
            return
        median = float(np.median(curve.value))
        if median >= MAX_RATIO_OF_NOTE:
            return
        yield self.finding(
            f"the importance ratio is {median:.2f} in the median ({name}), and 1 without a mismatch: the correction"
            " drops most of what long answers teach",
            "look at the difference of the log-probabilities first (top_p, top_k, old weights, dtype); if it is 0.02 or"
            " less per token, set vllm_importance_sampling_mode to token_truncate",
            severity="warning" if median < MAX_RATIO_OF_WARNING else "info",
            total=int(curve.step.size),
            figure=draw_curves(name, {name: curve}),
        )

    def _ratio(self) -> tuple[str, Curve]:
        """The ratio with its name."""
        return first_known_curve(self.subject, IMPORTANCE_RATIOS, MIN_RECORDS)
