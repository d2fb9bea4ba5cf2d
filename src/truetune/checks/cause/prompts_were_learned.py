"""The model was trained on its prompts nearly as much as on its answers.

## What it does
Compares the log-probabilities of some prompts, and of the reference answers after them, under the model and under its
base. It fires if the prompts have gained at least half as much per token as the answers, at least 0.2, and beyond
chance.

## Why it is bad
With labels on prompts, training is spent on questions that the model never has to write. Long prompts outweigh short
answers, and a model that has learned to write questions continues with one when it should stop.

## Example

```yaml
kind: model
look: {stopped: 3}
prompt_gain: {prompt: 0.82, reference: 0.41, error: 0.06, tokens: 412, prompts: 8}
```

## Use instead

```yaml
kind: model
look: {stopped: 8}
prompt_gain: {prompt: 0.04, reference: 0.41, error: 0.03, tokens: 412, prompts: 8}
```

## Fix safety
There is no automatic fix: set the labels of the prompts to -100 (`completion_only_loss`, `assistant_only_loss`,
`train_on_responses_only`, `train_on_inputs: false`), check the labels (`truetune run -- COMMAND`), and train again from
the base model.

## References

- huggingface/open-r1#517, tloen/alpaca-lora#255
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.detect_prompts_in_loss_by_likelihood import (
    HELP,
    have_prompts_gained_like_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_WITH_AND_WITHOUT
from truetune.checks.rule import CauseRule


class PromptsWereLearned(CauseRule):
    code = "CAU012"
    fault = Fault.PROMPTS_IN_LOSS
    symptoms = ("nothing-is-learned",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        return NOT_WITH_AND_WITHOUT if self.subject.prompt_gain is None else None

    def measurement_if_clean(self) -> str:
        """How much the prompts, and the references, gained over the base, in nats/token."""
        gain = self.subject.prompt_gain
        assert gain is not None
        return (
            f"over the base, the prompts gained {gain.prompt:+.2f} in log-probability per token, the references"
            f" {gain.reference:+.2f}"
        )

    def findings(self) -> Iterator[Finding]:
        gain = self.subject.prompt_gain
        if gain is None or not have_prompts_gained_like_answers(
            gain.prompt, gain.reference, gain.error
        ):
            return
        yield self.finding(
            f"the model was trained on its prompts: compared with the base, their tokens gained {gain.prompt:.2f} in"
            f" log-probability, those of the reference answers {gain.reference:.2f}",
            HELP,
            evidence=[
                f"{gain.tokens:,} tokens of {gain.prompts} prompts (standard error {gain.error:.2f}); training on"
                " answers only hardly changes the prompts"
            ],
        )
