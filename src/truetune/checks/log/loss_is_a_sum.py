"""The training loss is a whole multiple of the evaluation loss: it is summed, not averaged.

## What it does
Divides the training loss by `eval_loss` at each evaluation of the second half of the run (four evaluations in all at
least). It warns if that ratio is constant within 8 % and near a whole number, 2 or more, while the evaluation loss
falls by 20 % or more over the whole run. If the log or a file beside it contains `gradient_accumulation_steps`, the
number must be that (or that times the processes). From 4 on, two evaluations are enough then, their loss need not fall,
and the ratio may be up to one eighth below that number, since rows that are trained on have the lower loss. Dropout and
harder rows can raise a training loss, but not by a constant factor.

## Why it is bad
If `backward()` runs on the sum, gradients are larger by the same factor. A clipping norm of 1 hides that; without
clipping, steps are too large under SGD. The logged losses can't be compared with those of other runs. It happens if a
model or a custom `compute_loss` takes `num_items_in_batch` and ignores it: the loss of each accumulated batch is then a
mean, and these means are added up.

## Example
```yaml
curve:
  loss: {values: [40.0, 24.0, 20.0, 18.0, 17.0], steps: 100}
  eval_loss: {values: [2.25, 1.37, 1.2, 1.11, 1.06], steps: 100, every: 10}
```

## Use instead
```yaml
curve:
  loss: {values: [2.5, 1.5, 1.25, 1.12, 1.06], steps: 100}
  eval_loss: {values: [2.25, 1.37, 1.2, 1.11, 1.06], steps: 100, every: 10}
```

## Fix safety
Update transformers (4.46 and later, see the references), or divide by `num_items_in_batch` in `compute_loss`. A run
whose gradients were clipped needs no change, but its learning rate can't be compared with that of other runs.

## References
- huggingface/transformers#34191, huggingface/transformers#35438, huggingface/trl#2175
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import OTHER_LOSS, explain_too_short_curve
from truetune.checks.rule import LogRule
from truetune.logs.facts_in_files_beside_log import SettingBeside
from truetune.logs.is_loss_summed_not_averaged import (
    MAX_GAP_OF_KNOWN_COUNT,
    MAX_REMAINING_SHARE,
    RATIO_TOLERANCE,
    count_of_means_added_up_in_loss,
    evaluations_needed_to_judge_loss_ratio,
    is_accumulation_unknown,
)
from truetune.logs.run_log import RunLog


class LossIsASum(LogRule):
    code = "LOG029"
    fault = Fault.LOGGED_LOSS_SCALED_WRONGLY
    severity = "warning"
    kinds = ("language",)
    needs = ("loss", "eval_loss")

    def unmet(self) -> Unmet | None:
        """Also unmet where too few evaluations stand beside the loss, or the evaluation loss hardly
        falls.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.is_loss_of_token_prediction:
            return OTHER_LOSS
        loss, evaluated = (
            self.subject.curve("loss").finite(),
            self.subject.curve("eval_loss").finite(),
        )
        late = int((evaluated.step >= loss.step[0]).sum()) if loss else 0
        needed = evaluations_needed_to_judge_loss_ratio(self.subject)
        if late < needed:
            return explain_too_short_curve(late, needed, "eval_loss beside the loss")
        if not is_accumulation_unknown(self.subject):
            return None
        if evaluated.value[-1] > MAX_REMAINING_SHARE * evaluated.value[0]:
            return Unmet(
                "eval_loss falls by less than a fifth, so a factor looks the same as an offset"
            )
        return None

    def measurement_if_clean(self) -> str:
        """By which factors the training loss is above the evaluation loss."""
        loss, evaluated = (
            self.subject.curve("loss").finite(),
            self.subject.curve("eval_loss").finite(),
        )
        ratios = loss.at(evaluated.step) / evaluated.value
        return f"the training loss is {ratios.min():.3g} to {ratios.max():.3g} times eval_loss"

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        times = count_of_means_added_up_in_loss(log)
        if times is None:
            return
        loss, evaluated = log.curve("loss").finite(), log.curve("eval_loss").finite()
        step = float(evaluated.step[-1])
        norm = log.curve("grad_norm").finite()
        accumulated = _accumulation_setting_beside(log, times)
        over = (
            f"the {accumulated.value} batches of {accumulated.key} ({accumulated.place})"
            if accumulated is not None
            else "accumulated batches"
        )
        number = f"{times:.3g}" if accumulated is None else str(accumulated.value)
        yield self.finding(
            f"the training loss is {'about ' * (accumulated is not None)}{times:.3g} times eval_loss throughout"
            f" ({float(loss.at(step)):.4g} against {evaluated.value[-1]:.4g} at {log.unit_of_steps} {step:,.0f}): it"
            f" is summed over {over}, not averaged",
            f"update transformers, or divide by num_items_in_batch in compute_loss; to read the losses of this log,"
            f" divide them by {number}",
            evidence=(f"the gradient norm is {norm.value[0]:.4g} at first",) if norm else (),
            figure=draw_curves(
                "loss and eval_loss", {"loss": loss, "eval_loss": evaluated}, log=True
            ),
        )


def _accumulation_setting_beside(log: RunLog, times: float) -> SettingBeside | None:
    """The accumulation that a file beside the log sets, where the ratio of the losses may be that number.

    The ratio is that of two sets of rows: the training's loss is a little less than the evaluation's by itself.
    """
    setting_beside = log.files_beside.setting("gradient_accumulation_steps")
    if (
        setting_beside is None
        or not isinstance(setting_beside.value, int)
        or setting_beside.value < 2
    ):
        return None
    is_near = (
        (1 - MAX_GAP_OF_KNOWN_COUNT) * setting_beside.value
        <= times
        <= (1 + RATIO_TOLERANCE) * setting_beside.value
    )
    return setting_beside if is_near else None
