"""Generated answers are always cut off at the length limit: none of them ends.

## What it does
Reads, in the logs of trainers that generate (GRPO, RLOO, OnlineDPO), the share of answers that were cut at
`max_completion_length`. That is `completions/clipped_ratio`; else `val/contain_eos_token`, PPO's `val/num_eos_tokens`,
a `mean_terminated_length` of 0, or a mean length that is the same whole number in five records or more. It fires if all
answers are cut in every record. It warns if 80 % or more are cut, both in the median of the whole run and in that of
its last quarter.

In other trainings it reads the mean length of the answers that evaluations generate (`eval_gen_len`). It warns if that
is the same whole number, 16 or more, in all evaluations, three at least.

## Why it is bad
An answer that is cut off has no result to grade, so the rewards are those of unfinished texts, and the model learns its
length from the limit. With `mask_truncated_completions` cut answers are left out of the loss, so nothing is learned.
The stop token is never sampled, so it is never rewarded either. In evaluations, scores of cut answers stay low whatever
the model learned: transformers generates 20 tokens if no length is given.

## Example
```yaml
curve:
  reward: {from: 0.1, steps: 20, noise: 0.02}
  completions/mean_length: {from: 256, steps: 20}
  completions/clipped_ratio: {from: 1.0, steps: 20}
  completions/mean_terminated_length: {from: 0.0, steps: 20}
```

## Use instead
```yaml
curve:
  reward: {from: 0.1, to: 0.5, steps: 20, noise: 0.02}
  completions/mean_length: {from: 180, steps: 20, noise: 3}
  completions/clipped_ratio: {from: 0.1, steps: 20, noise: 0.01}
  completions/mean_terminated_length: {from: 170, steps: 20, noise: 3}
```

## Fix safety
Generate some answers with a long limit first (`truetune sample`): that shows whether the model ever stops, and after
how many tokens. If it never stops, its stop tokens are the cause and not the limit. A higher limit takes more time and
memory for each step.

## References
- huggingface/trl#2969; huggingface/transformers#10032
- Yu et al. 2025 (DAPO), arXiv 2503.14476, section 3.4 (reward of cut answers)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import explain_too_short_curve
from truetune.checks.rule import LogRule
from truetune.logs.grpo_learning_signal_and_cut_answers import (
    constant_length_of_evaluation_answers,
    is_share_always_one,
    mean_answer_length,
    share_of_cut_off_answers,
)
from truetune.logs.run_log import Curve

# Chosen, not measured: at 0.4, tasks whose long answers are rare would fire; a run with one answer in five that ends
# still learns from it.
MIN_CUT_SHARE = 0.8
MIN_STEPS = 2
"""Steps. Chosen by hand: the first record of a run can hold a few answers of one prompt; from two on it is the run"""


class CompletionsAlwaysCut(LogRule):
    code = "LOG028"
    fault = Fault.ANSWERS_CUT_AT_TOKEN_LIMIT
    symptoms = (
        "reward-does-not-rise",
        "agent-training",
        "garbage-output",
        "never-stops",
        "slow-generation",
    )
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        limit = constant_length_of_evaluation_answers(log)
        if limit is not None:
            yield self._finding_on_evaluations(*limit)
        share = share_of_cut_off_answers(log)
        if log.kind != "reinforcement" or log.last_step < MIN_STEPS or not share:
            return
        dead = is_share_always_one(share)
        last = float(np.median(share.value[-max(1, share.value.size // 4) :]))
        if not dead and min(float(np.median(share.value)), last) < MIN_CUT_SHARE:
            return
        yield self.finding(
            (
                f"every answer is cut off at the length limit in all {share.step.size:,} records: none ends"
                if dead
                else f"{np.median(share.value):.0%} of the answers are cut off at the length limit"
            ),
            "raise max_completion_length (response_length in PPO); if answers never end at any length, check which"
            " stop tokens are generated and expected (`truetune sample MODEL`)",
            severity="error" if dead else "warning",
            evidence=tuple(self._evidence()),
            count=int((share.value >= 1).sum()),
            total=int(share.step.size),
            figure=draw_curves("answers cut off", {"share": share}),
        )

    def _finding_on_evaluations(self, name: str, length: Curve) -> Finding:
        """The finding that all answers of the evaluations have the length of their limit."""
        limit = int(length.value[0])
        # T5 begins its answers with the pad token, which some metrics don't count.
        default = limit in (19, 20)
        return self.finding(
            f"{name} is exactly {limit:,} at all {length.step.size:,} evaluations: the answers are cut off at"
            + (" transformers' default length of 20 tokens" if default else " that length")
            + ", so their scores measure nothing",
            "set generation_max_length (or max_new_tokens in the generation config) to the longest reference answer"
            " in tokens, and evaluate the same checkpoint again",
            severity="warning",
            count=int(length.step.size),
            total=int(length.step.size),
        )

    def _evidence(self) -> Iterator[str]:
        """Evidence: the mean length of the answers, and gradient norms of 0, as masked answers
        leave them.
        """
        log = self.subject
        length = mean_answer_length(log)
        if length:
            yield f"their mean length is {np.median(length.value):,.4g} tokens"
        norm = log.curve("grad_norm").finite()
        if norm and not norm.value.any():
            yield (
                "every gradient norm is 0 as well, as happens if cut answers are left out of the loss"
                " (mask_truncated_completions)"
            )

    def unmet(self) -> Unmet | None:
        """Also unmet where the log does not say how many answers were cut, or has too few steps."""
        unmet = super().unmet()
        if unmet is not None or constant_length_of_evaluation_answers(self.subject) is not None:
            return unmet
        if self.subject.kind != "reinforcement":
            return Unmet(
                f"it is about answers that a trainer generates, and the log is of {self.subject.kind}"
                " without one length of them"
            )
        if not share_of_cut_off_answers(self.subject):
            return Unmet(
                "the log does not say how many answers were cut",
                "log completions/clipped_ratio (TRL 0.16 on)",
            )
        return (
            explain_too_short_curve(1, MIN_STEPS, "the answers")
            if self.subject.last_step < MIN_STEPS
            else None
        )

    def measurement_if_clean(self) -> str:
        """The share of answers that are cut off, or the length that all evaluations have."""
        limit = constant_length_of_evaluation_answers(self.subject)
        if limit is not None:
            return f"{limit[0]} is {limit[1].value[0]:,.0f} at {limit[1].step.size:,} evaluations"
        share = share_of_cut_off_answers(self.subject).value
        return (
            f"{np.median(share):.1%} of the answers are cut off (median of {share.size:,} records),"
            f" {share[-1]:.1%} at the end"
        )
