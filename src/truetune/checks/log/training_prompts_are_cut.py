"""Prompts are cut at their length limit, so the policy answers questions that it has not read to the end.

## What it does
Reads `prompt_length/clip_ratio` of verl: the share of prompts that have exactly the longest allowed length. It warns if
the median over the run is 2 % or more.

## Why it is bad
With `data.truncation: left` the system prompt and the task are lost, with `right` the end of the question and the mark
after which the answer begins. No answer to such a prompt can be right but by luck: it counts as a wrong answer of a
policy that was never asked. Nothing in the reward tells these prompts from hard ones.

## Example
```yaml
curve:
  reward: {from: 0.3, to: 0.4, steps: 40, noise: 0.01}
  response_length/mean: {from: 300, to: 320, steps: 40, noise: 5}
  prompt_length/clip_ratio: {from: 0.12, steps: 40, noise: 0.01}
```

## Use instead
```yaml
curve:
  reward: {from: 0.3, to: 0.6, steps: 40, noise: 0.01}
  response_length/mean: {from: 300, to: 320, steps: 40, noise: 5}
  prompt_length/clip_ratio: {from: 0.0, steps: 40}
```

## Fix safety
Leaving long prompts out is safe and loses their rows. A higher limit keeps them and takes memory for all.

## References
- verl-project/verl#1015, verl-project/verl#506 ("increase max_prompt_length to avoid over-truncation"),
  huggingface/trl#4358
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve

PROMPTS_AT_LIMIT = "prompt_length/clip_ratio"
MIN_RECORDS = 5
# A prompt may have the length of the limit by chance; one in fifty does so in no data set that was looked at.
MIN_SHARE = 0.02


class TrainingPromptsAreCut(LogRule):
    code = "LOG185"
    fault = Fault.PROMPTS_CUT_BEFORE_ANSWERING
    symptoms = ("reward-does-not-rise", "nothing-is-learned")
    severity = "warning"
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where the log does not say how many prompts are cut."""
        if (unmet := super().unmet()) is not None:
            return unmet
        if self._share().step.size >= MIN_RECORDS:
            return None
        return Unmet("the log does not say how many prompts are cut")

    def measurement_if_clean(self) -> str:
        """The share of prompts at the limit."""
        return (
            f"{np.median(self._share().value):.1%} of the prompts have the longest allowed length"
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on prompts at the limit."""
        share = self._share()
        if self.subject.kind != "reinforcement" or share.step.size < MIN_RECORDS:
            return
        median = float(np.median(share.value))
        if median < MIN_SHARE:
            return
        yield self.finding(
            f"{median:.0%} of the prompts have exactly the longest allowed length ({PROMPTS_AT_LIMIT}): they are cut,"
            " and no answer to them can be right",
            "raise data.max_prompt_length, or set data.filter_overlong_prompts to true",
            total=int(share.step.size),
            figure=draw_curves("prompts at the limit", {PROMPTS_AT_LIMIT: share}),
        )

    def _share(self) -> Curve:
        """The share of prompts that have the longest allowed length."""
        return self.subject.curve(PROMPTS_AT_LIMIT).finite()
