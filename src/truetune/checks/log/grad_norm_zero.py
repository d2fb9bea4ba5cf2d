"""Every gradient norm is exactly 0.0: no parameter is trained.

## What it does
Looks for a run whose `grad_norm` is 0.0 in every record, two at least, and whose loss does not fall. In reinforcement
learning (GRPO, RLOO), whose loss is always near 0, the norm is enough, unless rewards that never differ
(`no-reward-signal`) or answers that are all cut off (`completions-always-cut`) explain it. There it also warns if half
of 20 norms or more are 0 and the log does not say whether rewards differ.

## Why it is bad
No parameter changes. Usually an adapter was loaded by `PeftModel.from_pretrained` without `is_trainable=True`, or every
parameter was frozen. The run ends normally and saves what it started with. If the output contains torch's warning on
checkpointed inputs without gradients, that is the cause: reentrant checkpointing over a frozen embedding.

## Example
```yaml
curve:
  loss: {from: 5.77, steps: 20, noise: 0.05}
  grad_norm: {from: 0.0, steps: 20}
```

## Use instead
```yaml
curve:
  loss: {from: 5.77, to: 4.0, steps: 20, noise: 0.05}
  grad_norm: {from: 1.3, steps: 20, noise: 0.1}
```

## Fix safety
`is_trainable=True` only changes which parameters need gradients. `use_reentrant: False` changes how checkpointed layers
are recomputed, not the results.

## References
- huggingface/peft#282, huggingface/peft#1410, huggingface/trl#6700
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.dpo_settings_from_curves import all_logps_are_zero
from truetune.logs.grpo_learning_signal_and_cut_answers import (
    is_share_always_one,
    share_of_cut_off_answers,
    share_of_prompts_with_equal_rewards,
)
from truetune.logs.robust_statistics import is_falling, medians_of_both_ends

# Chosen, not measured: some batches of reinforcement have rewards that do not differ, so single zeros are normal; from
# a half on, most of the run's time is spent on steps without a gradient.
MIN_POINTS, MIN_ZERO_SHARE = 20, 0.5
CHECKPOINTED = "checkpointing-without-gradient"
"""The known message of torch's reentrant checkpointing where nothing below requires a gradient"""
THROUGH_CHECKPOINTS = (
    "call model.enable_input_require_grads() before training, or set"
    " gradient_checkpointing_kwargs={'use_reentrant': False}: the checkpointed layers cut off the"
    " gradients"
)
NO_TRAINABLE_PARAMETER = (
    "print which parameters require gradients (model.print_trainable_parameters()), and check that the optimizer has"
    " them; a loaded adapter is frozen unless you pass is_trainable=True to PeftModel.from_pretrained"
)


class GradNormZero(LogRule):
    code = "LOG005"
    fault = Fault.NO_WEIGHT_TRAINED
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    needs = ("grad_norm",)
    least = 2

    def unmet(self) -> Unmet | None:
        """Also unmet where all norms are 0 for a reason that another rule is about, or were not
        measured.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.curve("grad_norm").value.any():
            return None
        if self._is_explained_by_another_rule():
            return Unmet(
                "every gradient norm is 0, which rewards without a spread, cut answers, none at all, or steps that"
                " are skipped explain"
            )
        return Unmet("every gradient norm is 0 while the loss is 0 or falls: it was not measured")

    def measurement_if_clean(self) -> str:
        """How many gradient norms are 0, and their median."""
        norm = self.subject.curve("grad_norm").finite().value
        zeros = int((norm == 0).sum())
        return (
            f"{zeros:,} of {norm.size:,} gradient norms are 0; their median is"
            f" {np.median(norm):.3g}"
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        norm, loss = log.curve("grad_norm"), log.curve("loss").finite()
        if log.kind == "reinforcement":
            yield from self._findings_on_mostly_zero_norms()
        if norm.step.size < 2 or np.any(norm.value != 0) or self._is_explained_by_another_rule():
            return
        evidence = self._checkpointing_evidence()
        if log.kind != "reinforcement" and loss:
            # a loss that falls says that weights move: then the norm was not measured (0 is what some trainers log)
            if not loss.value.any() or (loss.step.size > 2 and is_falling(loss)):
                return
            first, last = medians_of_both_ends(loss.value)
            evidence = (f"the loss stays: {first:.4g} at first, {last:.4g} at the end", *evidence)
        yield self.finding(
            f"the gradient norm is exactly 0.0 at all {norm.step.size:,} logged steps: no parameter"
            " is trained",
            THROUGH_CHECKPOINTS if self._checkpointing_evidence() else NO_TRAINABLE_PARAMETER,
            evidence=evidence,
            count=int(norm.step.size),
            total=int(norm.step.size),
            figure=draw_curves("loss and gradient norm", {"loss": loss, "grad_norm": norm}),
        )

    def _checkpointing_evidence(self) -> tuple[str, ...]:
        """Evidence that the output warns of checkpointed layers without gradients, which is a cause
        of its own.
        """
        output = self.subject.output
        notices = output.notices if output else ()
        return tuple(
            f"line {notice.line:,} of {output.file} shows the cause: {notice.text}"
            for notice in notices
            if output and notice.message.name == CHECKPOINTED
        )

    def _findings_on_mostly_zero_norms(self) -> Iterator[Finding]:
        """Findings on reinforcement in which most steps have no gradient, and rewards without a
        spread do not tell why.
        """
        norm = self.subject.curve("grad_norm")
        zeros = int((norm.value == 0).sum())
        if norm.step.size < MIN_POINTS or not MIN_ZERO_SHARE <= zeros / norm.step.size < 1:
            return
        if share_of_prompts_with_equal_rewards(self.subject):
            return
        yield self.finding(
            f"the gradient norm is exactly 0.0 at {zeros:,} of {norm.step.size:,} logged steps, and"
            " the log does not say whether rewards differ",
            "log reward_std or frac_reward_zero_std, and check that the answers to one prompt get"
            " different rewards",
            severity="warning",
            count=zeros,
            total=int(norm.step.size),
            figure=draw_curves("gradient norm", {"grad_norm": norm}),
        )

    def _is_explained_by_another_rule(self) -> bool:
        """Does another rule's finding name what leaves no gradient?"""
        if all_logps_are_zero(self.subject):
            return True
        log = self.subject
        if log.output is not None and (
            log.output.skips.is_loss_scale_fixed
            or log.output.skips.is_loss_scale_at_its_least
            or log.output.skips.is_every_step_skipped
        ):
            return True
        return log.kind == "reinforcement" and (
            is_share_always_one(share_of_prompts_with_equal_rewards(log))
            or is_share_always_one(share_of_cut_off_answers(log))
        )
