"""The loss of the content falls, but the loss of the stop token does not.

## What it does
Uses the losses by token source, from the fourth record on. It fires if the loss of the assistant's content has fallen
by 10 %, and that of the stop token has neither fallen by 10 % nor is below 1 (a probability of 0.37). It is an error if
the latter is above 6.9 in the second half of a run (a probability of 0.001), otherwise a warning. It also fires if the
content is trained on and no stop token ever is (error).

## Why it is bad
The stop token is the easiest token to learn: it ends every answer. If its loss does not fall, its label is wrong or its
embedding row is not trained, and the model will not stop.

## Example

```yaml
losses:
  - {step: 10, assistant content: 2.0, stop token: 9.1}
  - {step: 20, assistant content: 1.6, stop token: 9.2}
  - {step: 30, assistant content: 1.3, stop token: 9.0}
  - {step: 40, assistant content: 1.1, stop token: 9.3}
```

## Use instead

```yaml
losses:
  - {step: 10, assistant content: 2.0, stop token: 9.1}
  - {step: 20, assistant content: 1.6, stop token: 3.2}
  - {step: 30, assistant content: 1.3, stop token: 0.4}
  - {step: 40, assistant content: 1.1, stop token: 0.1}
```

## Fix safety
There is no automatic fix. With LoRA on a base model, train the embedding rows of the stop tokens too
(`trainable_token_indices`), and check that the labels end with the stop token that the server uses.

## References

- QwenLM/Qwen3#1064, hiyouga/LLaMA-Factory#7943
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp

from truetune.checks.answers.count_bad_answers_per_pass import is_late_in_run
from truetune.checks.answers.loss_curves_by_token_source import (
    first_loss_and_last_level,
    loss_curve_of_source,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.plot_of_finding import Figure, Series
from truetune.checks.rule import AnswersRule

# Records of the losses: the median of the last third needs one that is not the first. Chosen, not measured.
MIN_RECORDS = 4
# Share of its first loss below which the content is learned, and above which the stop token is not.
LEARNED_SHARE = 0.9
WATCH = "train with truetune train, or with AuditCallback"
# Nats: a probability of 0.37, at which a stop token is the likeliest or nearly so, whatever its loss was at first.
LEARNED_STOP_LOSS = 1.0
# Nats: a probability of 0.001, as answers-never-stop takes it for a model that knows nothing of stopping.
UNLEARNED_STOP_LOSS = 6.9


class StopTokenNotLearned(AnswersRule):
    code = "ANS010"
    fault = Fault.MODEL_DOES_NOT_END_ITS_ANSWERS
    symptoms = ("never-stops",)
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        content = loss_curve_of_source(self.subject, "assistant content")
        stop = loss_curve_of_source(self.subject, "stop token")
        if len(content) < MIN_RECORDS:
            return Unmet(
                f"the losses by source have {len(content):,} records, and it takes {MIN_RECORDS}",
                WATCH,
            )
        if len(stop) not in (0, len(content)):
            return Unmet("the loss of the stop token was not recorded each time")
        first, last = first_loss_and_last_level(content)
        if last > LEARNED_SHARE * first:
            return Unmet(f"the loss of the content has not fallen by a tenth: it is {last:.3g}")
        return None

    def measurement_if_clean(self) -> str:
        """The loss of the stop token at first and at last."""
        first, last = first_loss_and_last_level(loss_curve_of_source(self.subject, "stop token"))
        return (
            f"the loss of the stop token goes from {first:.3g} to {last:.3g} (P = {exp(-last):.2g})"
        )

    def findings(self) -> Iterator[Finding]:
        content = loss_curve_of_source(self.subject, "assistant content")
        stop = loss_curve_of_source(self.subject, "stop token")
        if len(content) < MIN_RECORDS or len(stop) not in (0, len(content)):
            return
        if not stop:
            yield self.finding(
                f"no stop token had a label in any of {len(content)} records of the losses: the model won't learn to"
                " stop",
                "end each training answer with its stop token, and give it a label (truetune run -- COMMAND shows"
                " the labels)",
            )
            return
        first_content, last_content = first_loss_and_last_level(content)
        first_stop, last_stop = first_loss_and_last_level(stop)
        if last_content > LEARNED_SHARE * first_content:
            return
        if last_stop < max(LEARNED_STOP_LOSS, LEARNED_SHARE * first_stop):
            return
        has_passes = bool(self.subject.looks)
        is_unlearned = last_stop > UNLEARNED_STOP_LOSS
        yield self.finding(
            f"the stop token is not being learned: its loss was {first_stop:.3g} and is now {last_stop:.3g} (a"
            f" probability of {exp(-last_stop):.2g})",
            "check that the labels end with the stop token that the server uses (truetune run -- COMMAND shows"
            " them); with LoRA on a base model, train its embedding row too (trainable_token_indices in LoraConfig)",
            severity=(
                "error"
                if is_unlearned and has_passes and is_late_in_run(self.subject)
                else "warning"
            ),
            evidence=[
                f"the loss of the content fell from {first_content:.3g} to {last_content:.3g}"
                " meanwhile"
            ],
            figure=Figure(
                "loss by source",
                tuple(self._loss_series(name) for name in ("assistant content", "stop token")),
            ),
        )

    def _loss_series(self, name: str) -> Series:
        """The losses of one source by step."""
        records = [record for record in self.subject.losses if name in record.by_source]
        steps = tuple(float(record.step) for record in records)
        return Series(name, steps, tuple(record.by_source[name] for record in records))
